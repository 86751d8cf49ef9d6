"""Which line of model code makes a tensor: asked of the thread's own stack, and put into words later.

Asking costs what a few attributes cost, because only a position in the code is kept: finding the line of it
takes longer, and is done when the track is over. No frame, and nothing in one, is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import takewhile
from sys import _getframe
from types import CodeType, FrameType

from bls_notebook.devices.allocation_log import Place
from bls_notebook.engine.exception_text import HOME, ModelHome, label_of, source_of
from bls_notebook.records.raw_events import CodeLine
from bls_notebook.records.visible_text import encodable

_FRAMES = range(40)  # that are looked at: libraries between the model and what makes the tensor
_TEXT = 200  # characters of a line


def place_finder() -> Callable[[], Place | None]:
    """Return a function that gives this thread's place in code of a model or of the notebook, or None."""
    notebook = vars(sys.modules["__main__"])
    known: dict[tuple[int, int], Place] = {}  # they keep the code, so that no other gets its id

    def place() -> Place | None:
        frame = _getframe(2)  # whoever has called what asks
        spot = id(frame.f_code), frame.f_lasti
        found = known.get(spot)
        if found is None:
            found = search(frame)
            if found is not None and found[0] is frame.f_code:
                known[spot] = found
        return found

    def search(frame: FrameType | None) -> Place | None:
        for _ in _FRAMES:
            if frame is None:
                break
            variables = frame.f_globals
            home = dict.get(variables, HOME)
            if home is not None and issubclass(type(home), ModelHome):
                return frame.f_code, frame.f_lasti, home.model
            if variables is notebook:
                return frame.f_code, frame.f_lasti, ""
            frame = frame.f_back
        return None

    return place


def line_of(place: Place) -> CodeLine:
    code, last, _ = place
    lines = (line for start, end, line in code.co_lines() if start <= last < end)
    number = next(lines, None) or code.co_firstlineno
    source = source_of(code.co_filename)
    text = source[number - 1].strip() if 0 < number <= len(source) else ""
    if "get_ipython()" in text:  # what IPython makes of a magic: nobody has written that
        text = ""
    return CodeLine(encodable(label_of(code.co_filename)), number, _function(code), encodable(text[:_TEXT]))


def _function(code: CodeType) -> str:
    """The name of the function; for a comprehension or a lambda, that of the function around it."""
    names = getattr(code, "co_qualname", code.co_name).split(".")
    found = [*takewhile(lambda name: name == "<locals>" or not name.startswith("<"), names)]
    *_, function = "", *(name for name in found if name != "<locals>")
    return encodable(function)
