"""``%blsmap``: a model's answers to a whole data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics import MagicCall, evaluate
from bls_notebook.operations import MODEL, OperationSpec, UsageProblem, names, option, whole_number

from .batch_function import ERRORS

if TYPE_CHECKING:
    from .result import MapResult


def _map(
    call: MagicCall, model: str, inputs: Mapping[str, Any], data: str = "", on: str = "", into: str = "", **options: Any
) -> MapResult:
    if bool(inputs) == bool(data):
        raise UsageProblem("give either INPUT=EXPRESSION pairs or --data, not both or neither")
    given: Any = inputs or evaluate(data, call.variables, call.name)
    if on:
        options["on"] = evaluate(on, call.variables, call.name)
    return bls.map(model, given, into=into or None, **options)


MAP = OperationSpec(
    """Answer all rows of a data set. Sends rows of arrays, frames or Parquet files to a model in requests that its
    configuration allows, in this kernel or on a Dask cluster (--on), and shows rows per second, each worker's parts
    over time and the rows without an answer. With --answers, it writes one Parquet file per part, and running the cell
    again continues after the last finished part. In scripts: bls.map(); for other engines: bls.batch_function().
    Guide: docs/guides/data_sets.md.""",
    options=(
        MODEL,
        option("--data", "EXPRESSION", "a frame, a path of Parquet files, or an iterable of batches"),
        option("--batch", "N", "rows of a part (default: 256)", whole_number(1)),
        option("--on", "EXPRESSION", "a number of worker processes, or a dask.distributed.Client"),
        option("--answers", "FOLDER", "write the answers there, a Parquet file per part", dest="into"),
        option("--errors", "HOW", "raise (default), or column: failed rows have a message", choices=ERRORS),
        option("--outputs", "OUTPUT,...", "request only these outputs (default: all)", names),
        option("--keep", "COLUMN,...", "columns to write beside the answers", names),
        option("--concurrency", "N", "requests in flight at a time (default: 1)", whole_number(1)),
        option("--compare", "N", "random rows that the kernel answers, too", whole_number(0), dest="check"),
    ),
    examples="""
    %blsmap reader IMAGE=images --on 4 --answers answers/
    %blsmap double --data frame --batch 1024 --errors column
    """,
    form="inputs",
    notebook=_map,
)
