"""`CodeLine`, and how to find the line of model code that makes a tensor, from the thread's own stack.

`place_finder` costs only a few attribute look-ups, because it keeps a position in a code object. `line_of` turns the
position into a line when the recording is over, which takes longer. No frame, and no object of a frame, is kept alive.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from sys import _getframe
from types import CodeType, FrameType

from bls_notebook.devices.allocation_log import Origin
from bls_notebook.engine import home_of, label_of, source_of
from bls_notebook.records import Record, encodable

_FRAMES = range(40)  # frames to search: libraries may be between the model and the constructor
_TEXT = 200  # characters of a line


@dataclass(frozen=True, slots=True, repr=False)
class CodeLine(Record):
    """The line of code that allocated a block of memory; `line` is 0 if it is unknown.

    `function` is empty for code at the top level of a cell or file; `text` is the source of the line.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""


NOWHERE = CodeLine()


def place_finder() -> Callable[[], Origin | None]:
    """Return a function that returns this thread's place in code of a model or of the notebook, or None."""
    notebook = vars(sys.modules["__main__"])
    known: dict[tuple[int, int], Origin] = {}  # its values keep the code alive, so that IDs are not reused

    def current_place() -> Origin | None:
        frame = _getframe(2)  # the caller of the function that calls this one
        spot = id(frame.f_code), frame.f_lasti
        place = known.get(spot)
        if place is None:
            place = search(frame)
            if place is not None and place[0] is frame.f_code:
                known[spot] = place
        return place

    def search(frame: FrameType | None) -> Origin | None:
        for _ in _FRAMES:
            if frame is None:
                break
            home = home_of(frame.f_globals)
            if home is not None:
                return frame.f_code, frame.f_lasti, home.model
            if frame.f_globals is notebook:
                return frame.f_code, frame.f_lasti, ""
            frame = frame.f_back
        return None

    return current_place


def line_of(place: Origin) -> CodeLine:
    code, last, _ = place
    lines = (line for start, end, line in code.co_lines() if start <= last < end)
    number = next(lines, None) or code.co_firstlineno
    source = source_of(code.co_filename)
    text = source[number - 1].strip() if 0 < number <= len(source) else ""
    if "get_ipython()" in text:  # IPython's translation of a magic, which the user did not write
        text = ""
    return CodeLine(encodable(label_of(code.co_filename)), number, function_of(code), encodable(text[:_TEXT]))


def function_of(code: CodeType) -> str:
    """Return the name of the function; for a comprehension or a lambda, the name of the enclosing function."""
    names = getattr(code, "co_qualname", code.co_name).split(".")
    outer = [*takewhile(lambda name: name == "<locals>" or not name.startswith("<"), names)]
    *_, function = "", *(name for name in outer if name != "<locals>")
    return encodable(function)
