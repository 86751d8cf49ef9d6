"""``%blsdrill`` and ``python -m bls_notebook drill``: run a model while its callees fail, and judge how it reacts."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.operations import (
    MODEL,
    PARAMETERS,
    QUIET,
    REPOSITORY,
    SEQUENCE,
    OperationSpec,
    flag,
    names,
    new_file,
    opened,
    option,
    timeout,
)
from bls_notebook.testing.records import Drilled

if TYPE_CHECKING:
    from bls_notebook.magics import MagicCall


def _drill(call: MagicCall, file: str = "", **options: Any) -> Drilled:
    drilled = bls.drill(save=file or None, **options)
    if file:
        call.notebook.say(f"saved to {file}", hint=f"python -m pytest {file} runs it")
    return drilled


def _drill_repository(
    repository: str, model: str, inputs: Sequence[str] = (), load: Sequence[str] = (), file: str = "", **options: Any
) -> Generator[Drilled, None, None]:
    values = dict(map(_input, inputs))
    with opened(repository, [model, *load]) as repo:
        yield bls.drill(model, values, repo=repo, save=file or None, **options)


def _input(pair: str) -> tuple[str, object]:
    """Parse an input of the command line."""
    import numpy as np

    name, equals, value = pair.partition("=")
    try:
        if not (name and equals):
            raise ValueError("it has no name")
        return name, np.load(value[1:], allow_pickle=False) if value[:1] == "@" else json.loads(value)
    except (ValueError, OSError) as error:
        raise bls.BLSError(
            f"got {pair!r}, expected INPUT=VALUE with JSON or @FILE.npy, such as IN=[1,2]: {error}"
        ) from error


DRILL = OperationSpec(
    """Make each callee of a model fail in turn and show how the model reacts. A request without faults comes first.
    Then each callee fails: error, cancelled, raises, not-ready, unloaded, out-of-memory; missing-output, empty,
    shape, data-type, nan, inf, huge; for streams no-response, early-end, duplicate, error-midway, no-final-flag;
    stall, slow, other-order. A table shows how MODEL reacted: it reported the failure clearly, did without the
    callee, hid the error behind another one, returned wrong values, did not respond, or leaked; with the line of
    code. A stalled callee is released as soon as it is certain that its caller has no time limit, so a drill does not
    wait long. INPUT=EXPRESSION sets an input, as for %bls. In scripts: bls.drill(); in a shell: python -m
    bls_notebook drill. Guide: docs/guides/testing.md.""",
    options=(
        REPOSITORY,
        MODEL,
        option("inputs", "INPUT=VALUE", "inputs that succeed, as JSON or @FILE.npy", str, "shell", nargs="*"),
        option("--load", "MODEL,...", "also load these models, such as callees that an input names", names, "shell"),
        option("--faults", "FAULT,...", "only these faults, such as error,stall,nan (default: all)", names),
        flag("--pairs", "also let two callees fail at a time; shows pairs with a worse verdict than each alone"),
        timeout("how much later than usual a response, or a caller's own time limit, may come (default: 1s)"),
        PARAMETERS,
        SEQUENCE,
        option("--save", "FILE", "a pytest file, such as tests/test_drill_x.py, of bad cases", new_file, dest="file"),
        QUIET,
    ),
    examples="""
    %blsdrill digit_reader IMAGE=image
    %blsdrill digit_reader IMAGE=image --faults error,stall,nan --pairs
    report = %blsdrill pipeline IN=x --timeout 3s --save tests/test_drill_pipeline.py
    """,
    form="inputs",
    notebook=_drill,
    shell=_drill_repository,
    failed=lambda drilled: drilled.of("bad"),
)
