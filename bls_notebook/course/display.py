"""A guess before an answer: what a cell showed stays folded away until somebody has guessed it.

While a kernel is there a widget takes the guess, and then unfolds what is below it. Anywhere else the choices
are a line, and the fold opens by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.bundle import Display
from bls_notebook.display.document import Block, Both, Document, Fold, Line, Piece
from bls_notebook.display.html import Html, join, prose, tag, text
from bls_notebook.display.widgets import VIEW, covered, new_place, widget_source
from bls_notebook.records.base import Record

LONGEST = 200  # characters of a guess
_IMAGES = ("image/svg+xml", "image/png", "image/jpeg")


@dataclass(frozen=True, slots=True, repr=False)
class Shown(Record):
    """One output of a cell, as text and as markup that has been shown by its maker."""

    text: str = ""
    html: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Guess(Record):
    """A guess: between ``choices``, or free without any; empty until it is ``made``.

    ``outcome`` is what came of the cell.
    """

    choices: tuple[str, ...] = ()
    made: str = ""
    outcome: tuple[Shown, ...] = ()


def shown(printed: str, outputs: Iterable[Mapping[str, Any]]) -> tuple[Shown, ...]:
    """Return what a cell printed and displayed (bundles by mime types), as it can stand inside another
    display.

    Lines that were overwritten, as those of a progress bar, are left out.
    """
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in printed.splitlines())
    words = "\n".join(lines).strip("\n")
    found = [Shown(words, tag("pre", prose(words)))] if words else []
    for bundle in outputs:
        html, plain = bundle.get("text/html"), bundle.get("text/plain", "")
        image = next((kind for kind in _IMAGES if kind in bundle), None)
        if html is None and VIEW in bundle:
            continue  # a widget alone, such as a progress bar
        if html is None and image is not None:
            html = _image(image, bundle[image], plain)
        found.append(Shown(plain, tag("pre", prose(plain)) if html is None else html))
    return tuple(each for each in found if each.text or each.html)


def _image(kind: str, data: str | bytes, alt: str) -> Html:
    import base64

    if kind == "image/svg+xml" or isinstance(data, bytes):
        data = base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
    source = f"data:{kind};base64,{''.join(data.split())}"
    return Html(f'<img class="bls-guess-image" alt="{text(alt)}" src="{text(source)}">')


def guess_display(guess: Guess, *, width: int = 100, widget: Any = None) -> Display:
    """Show a guess, and below it what came, folded away until the guess is made; text can fold nothing.

    ``widget`` is what takes the guess while a kernel is there.
    """
    asked = _asked(guess)
    if widget is not None:
        asked = Piece(asked.text, covered(asked.html, widget))
    outcome: list[Block] = [_outcome(each) for each in guess.outcome]
    fold = Fold("What happened", outcome, is_open=bool(guess.made))
    document = Document([Line([asked]), fold], styles="guess")
    return Display(document_text(document, width), document_html(document), widget)


def _asked(guess: Guess) -> Piece:
    if guess.made:
        return Piece(f"Your guess: {guess.made}", join("Your guess: ", tag("b", guess.made), by=""))
    choices = join(*(tag("span", choice, cls="guess-choice") for choice in guess.choices), by=" · ")
    said = f"Your guess? {' · '.join(guess.choices)}".rstrip()
    return Piece(said, tag("span", tag("b", "Your guess?"), " ", choices))


def _outcome(each: Shown) -> Both:
    return Both(lambda _: each.text.split("\n"), Html(each.html))


def guess_widget(guess: Guess) -> Any:
    """Make what takes a guess: its trait ``guess`` is empty until then. Needs anywidget."""
    return _widget_class()(choices=list(guess.choices), guess=guess.made, place=new_place())


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class GuessWidget(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
        """Takes a guess, once; see `guess_widget`."""

        _esm = widget_source("guess.js")
        _css = widget_source("guess.css")

        choices: Any = traitlets.List(traitlets.Unicode()).tag(sync=True)
        guess = traitlets.Unicode().tag(sync=True)
        place = traitlets.Unicode().tag(sync=True)

        @traitlets.validate("guess")
        def _short(self, proposal: Any) -> str:
            return " ".join(str(proposal["value"]).split())[:LONGEST]

    return GuessWidget
