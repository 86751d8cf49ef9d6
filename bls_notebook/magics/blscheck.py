"""``%blscheck``: whether what was recorded last bears out a claim."""

from __future__ import annotations

from typing import Any

import bls_notebook as bls

from .failing import reported
from .notebook import Notebook
from .parsing.arguments import Parser, identifier
from .parsing.expressions import Variables, evaluate

__all__ = ["PARSER", "bls_check", "remember"]

PARSER = Parser(
    "%blscheck",
    "Judges a claim by what was recorded last, says what was seen, and has a hint where the claim does not "
    "hold: so an exercise is checked by what its model did, not by how it is written. About requests, by "
    "%%blsprofile: overlapped N [of MODEL], called MODEL [N], requests, queued, moved (tensors between "
    "devices), wall. About exec against async_exec, by %blsprofile: verdict == CAUSE, speedup. About memory, "
    "by %%blsmemory: nothing_left [on DEVICE], peak. About responses, by %bls: output NAME == VALUE, device, "
    "errors, responses, first (how soon). The cell does not fail, unless raise_errors is set. In scripts: "
    "assert bls.judge(profile, 'overlapped 4').",
    """\
  %blscheck overlapped 4 of scanner
  %blscheck peak < 2 MB on gpu:0
  %blscheck speedup > 2
  %blscheck queued < 5 ms of resize --of profile
""",
)
PARSER.usage = "%(prog)s CLAIM [--of NAME]"
_add = PARSER.add_argument
_add("claim", metavar="CLAIM", nargs="*", help="what should be so")
_add("--of", type=identifier, metavar="NAME", help="a variable with the record (default: the last one)")


def remember(notebook: Notebook, recorded: Any) -> None:
    """Keep what can be judged of what a magic recorded, until the next does."""
    from bls_notebook.observe.analysis.claims import records_of

    notebook.recorded.update(records_of(recorded))


def bls_check(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Judge a claim, and show what was seen."""
    arguments = PARSER.parse([word.text for word in PARSER.words_of(line)])
    if not arguments.claim:
        PARSER.error("missing: a claim, such as overlapped 4")
    recorded = notebook.recorded
    if arguments.of:
        recorded = evaluate(arguments.of, variables, "%blscheck: --of")
    with reported(notebook):
        judgement = bls.judge(recorded, " ".join(arguments.claim))
    notebook.show(judgement)
