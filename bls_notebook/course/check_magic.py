"""``%blscheck``: whether what was recorded last bears out a claim; ``%%blscheck``: whether a cell does."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import bls_notebook as bls
from bls_notebook.magics.cell_body import cell_body
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser, identifier
from bls_notebook.magics.parsing.words import Variables, evaluate
from bls_notebook.magics.shell.cell_errors import fail_on, reported

_CLAIMS = (
    "About requests: overlapped N [of MODEL], called MODEL [N], requests, queued, moved (tensors between "
    "devices), wall. About memory: nothing_left [on DEVICE], peak. About responses, by %bls: output NAME == "
    "VALUE, device, errors, responses, first (how soon). About exec against async_exec, by %blsprofile: "
    "verdict == CAUSE, speedup. Several are joined by `and`. "
)
PARSER = Parser(
    "%blscheck",
    "Judges a claim by what was recorded last, says what was seen, and has a hint where the claim does not "
    "hold: so an exercise is checked by what its model did, not by how it is written. " + _CLAIMS + "What "
    "%%blsprofile, %%blsmemory, %blsprofile and %bls record can be judged. In scripts: "
    "assert bls.judge(profile, 'overlapped 4').",
    """\
  %blscheck overlapped 4 of scanner
  %blscheck peak < 2 MB on gpu:0 and nothing_left
  %blscheck speedup > 2
  %blscheck queued < 5 ms of resize --of profile
""",
)
PARSER.usage = "%(prog)s CLAIM [and CLAIM ...] [--of NAME]"
_add = PARSER.add_argument
_add("claim", metavar="CLAIM", nargs="*", help="what should be so")
_add("--of", type=identifier, metavar="NAME", help="a variable with the record (default: the last one)")

CELL_PARSER = Parser(
    "%%blscheck",
    "Runs the cell, records its requests or its memory as the claim needs it, and judges the claim as "
    "%blscheck does. " + _CLAIMS,
    """\
  %%blscheck overlapped 4 of scanner
  %bls page IMAGES=images[:4] -q
""",
)
CELL_PARSER.usage = "%(prog)s CLAIM [and CLAIM ...]"
CELL_PARSER.add_argument("claim", metavar="CLAIM", nargs="*", help="what should be so")


def bls_check_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Judge claims, and show what was seen."""
    arguments = PARSER.parse([word.text for word in PARSER.words_of(line)])
    recorded: Any = _last_records(notebook)
    if arguments.of:
        recorded = evaluate(arguments.of, variables, "%blscheck: --of")
    _judge(notebook, recorded, _claims(PARSER, arguments.claim))


def bls_check_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell, and judge claims of what it did."""
    __tracebackhide__ = True
    from bls_notebook.testing.claims import recorded_by

    claims = _claims(CELL_PARSER, CELL_PARSER.parse([w.text for w in CELL_PARSER.words_of(line)]).claim)
    with reported(notebook):
        needed = {recorded_by(claim) for claim in claims}
    body = cell_body(notebook, "%%blscheck", cell)
    name = f"In [{notebook.cell_number}]"
    recorders: list[Any] = [bls.profile(name=name)] * ("%%blsprofile" in needed)
    recorders += [bls.track_memory(name=name)] * ("%%blsmemory" in needed)
    with ExitStack() as on:
        with reported(notebook):
            for recorder in recorders:
                on.enter_context(recorder)
        value = body()
    for recorder in recorders:
        notebook.remember(recorder)
    if "%bls" in needed and value is not None:
        notebook.remember(value)
    _judge(notebook, _last_records(notebook), claims)
    return None if cell.rstrip().endswith(";") else value


def _last_records(notebook: Notebook) -> dict[str, Any]:
    """Return what claims can be about, by the magic that recorded it last."""
    from bls_notebook.testing.claims import records_of

    found: dict[str, Any] = {}
    for record in notebook.recorded.values():
        found.update(records_of(record))
    return found


def _claims(parser: Parser, words: list[str]) -> list[str]:
    claims = [claim.strip() for claim in re.split(r"(?:^|\s)and(?:\s|$)", " ".join(words))]
    if not all(claims):
        parser.error("missing: a claim, such as overlapped 4")
    return claims


def _judge(notebook: Notebook, recorded: Any, claims: list[str]) -> None:
    with reported(notebook):
        judged = [bls.judge(recorded, claim) for claim in claims]
    for judgement in judged:
        fail_on(notebook, [] if judgement else [repr(judgement)], judgement)
        notebook.show(judgement)


LINE_MAGIC = Magic(PARSER, bls_check_line)
CELL_MAGIC = Magic(CELL_PARSER, bls_check_cell)
