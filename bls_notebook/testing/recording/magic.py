"""``%blsreplay``: send recorded requests again, or open one of them in the debugger."""

from __future__ import annotations

import bls_notebook as bls
from bls_notebook.magics.arguments import Parser, Variables, add_options, help_text, identifier
from bls_notebook.magics.cell_errors import fail_on, reported
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook
from bls_notebook.records.units import count

_KEYS = "; n: next line, s: step into a call, p VALUE: print, c: continue, q: quit"

PARSER = Parser("%blsreplay", *help_text(__file__, "%blsreplay"))
PARSER.usage = "%(prog)s FILE [--model MODEL] [--only MODEL] [--debug ID] [options]"
add_options(PARSER, __file__, "replay", "%blsreplay", identifier=identifier)


def blsreplay(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Send recorded requests again."""
    __tracebackhide__ = True
    arguments = PARSER.parse_line(line, variables)
    if arguments.debug is not None:
        return _opened(notebook, arguments.file, arguments.debug, arguments.model, arguments.only)
    with reported(notebook):
        replay = bls.replay(
            arguments.file, arguments.model, only=arguments.only, server=arguments.serve,
            tolerance=arguments.tolerance, ulps=arguments.ulps,
        )  # fmt: skip
    notebook.assign(arguments.into, replay)
    differ = f"not answered as recorded: {count(len(replay.unequal), 'request')}"
    fail_on(notebook, [differ] * (not replay.equal), replay)
    return replay


def _opened(notebook: Notebook, file: str, at: int, model: str | None, only: str | None) -> object:
    __tracebackhide__ = True
    from .debugger import has_frontend, stopped_in
    from .recording import load_recording
    from .replaying import recorded_execution

    with reported(notebook):
        recording = load_recording(file)
        receiver = recording.request(at).model
        if only not in (None, receiver):
            raise bls.BLSError(f"--debug {at} is a request to {receiver!r}, but --only is {only!r}; use the same model")
        execution = recorded_execution(recording, at, model, only is not None)
    inputs = ", ".join(f"{t.name} {t.datatype}{list(t.shape)} {t.preview}" for t in recording.request(at).kept.inputs)
    notebook.say(
        f"request {at} to {execution.model}: {inputs}", "info",
        hint="the variable `requests` has it" + _KEYS * (not has_frontend(notebook)),
    )  # fmt: skip
    responses = stopped_in(notebook, execution.code, execution.run)
    return responses[0] if len(responses) == 1 else responses


MAGIC = Magic(PARSER, blsreplay)
