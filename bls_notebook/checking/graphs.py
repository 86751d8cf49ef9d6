"""ONNX graphs: their inputs and outputs, read from the file, beside what the configuration says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from bls_notebook.backends.errors import BackendError
from bls_notebook.engine.errors import ConfigError
from bls_notebook.engines.onnxruntime.check import check
from bls_notebook.engines.onnxruntime.complete import complete, needs_completing
from bls_notebook.engines.onnxruntime.graph import signature_in
from bls_notebook.repository.config import ModelConfigMessage, parse_json, to_json

from .records import Finding

_FILE = "model.onnx"
_BATCH = re.compile(r"first dimension must be -1|does not support batching")


def with_graph(
    config: ModelConfigMessage, versions: Mapping[int, Path]
) -> tuple[ModelConfigMessage, str, bool]:
    """Return a configuration as the ONNX backend completes it, what it refuses, and if a graph was read."""
    if config.backend != "onnxruntime" or not versions:
        return config, "", False
    path = versions[max(versions)] / (config.default_model_filename or _FILE)
    signature = signature_in(path / _FILE if path.is_dir() else path)
    if signature is None:
        return config, "", False
    found = json.loads(to_json(config))
    try:
        if needs_completing(found):
            complete(found, signature)
            config = parse_json(found, model=config.name)
            found = json.loads(to_json(config))
        check(found, signature)
    except (BackendError, ConfigError) as error:
        return config, str(error), True
    return config, "", True


def graph_finding(model: str, where: str, line: int, problem: str) -> Finding:
    """Return what there is to say of a configuration that does not fit its graph."""
    mend = "Make `dims`, `data_type` and names in config.pbtxt those of the graph, or leave them out."
    why = "The server refuses to load the model."
    code = "graph-misfit"
    if _BATCH.search(problem):
        code = "graph-no-batch"
        why = "max_batch_size above 0 promises a batch as the first dimension, and the graph has none. " + why
        mend = (
            "Export the graph with a first dimension that varies (`dynamic_axes={'NAME': {0: 'batch'}}`), or "
            "set `max_batch_size: 0` and give `dims` the whole shape."
        )
    what = problem.removeprefix(f"model '{model}', ")
    return Finding("error", code, model, what, why, mend, where, line)
