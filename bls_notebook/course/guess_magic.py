"""``%%blsguess``: what a cell shows stays folded away until its reader has guessed it.

While a kernel is there, a widget takes the guess, and then unfolds what is below it. Anywhere else the
choices are a line, and the fold opens by hand.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from IPython.display import display
from IPython.utils.capture import capture_output

from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.display.bundle import Display
from bls_notebook.display.document import Block, Both, Document, Fold, Line, Piece
from bls_notebook.display.html import Html, join, prose, tag, text
from bls_notebook.display.widgets import VIEW, covered, new_place, widget_source
from bls_notebook.magics.arguments import Parser, Variables, identifier
from bls_notebook.magics.cell_body import cell_body
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook
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


PARSER = Parser(
    "%%blsguess",
    "Runs the cell, and keeps what it shows folded away until somebody has guessed it: one of the CHOICES, "
    "or anything where there are none. The guess is kept, also when the cell is run again, and saved with "
    "the notebook. Without a kernel the choices are a line, and the fold opens by hand. For lessons: ask in "
    "the text above, show here, explain below. The cell may begin with another magic of a cell.",
    """\
  %%blsguess "as long as one" "half as long" "as long as before"
  %blsprofile scanner IMAGE=image -n 8

  %%blsguess --into bytes_left
  %%blsmemory
  answer = %bls leaky IN=images
""",
)
_add = PARSER.add_argument
_add("choices", metavar="CHOICE", nargs="*", help="what can be guessed; quote those of several words")
_add("--into", type=identifier, metavar="NAME", help="a variable for the guess, text; empty until it is made")


def bls_guess(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Run a cell, and fold away what it shows until it was guessed."""
    __tracebackhide__ = True

    arguments = PARSER.parse_line(line, variables)
    body = cell_body(notebook, "%%blsguess", cell)
    captured = capture_output()
    with captured as said:
        try:
            value = body()
            if value is not None and not cell.rstrip().endswith(";"):
                display(value)  # type: ignore[no-untyped-call]
            failed = None
        except BaseException as error:
            failed = error
    if failed is not None:
        said.show()  # type: ignore[no-untyped-call]  # there is nothing to guess
        raise failed
    outputs = _latest(said.outputs)
    key = (*arguments.choices, cell.strip())
    made = _guesses(notebook).get(key, "")
    guess = Guess(tuple(arguments.choices), made, shown(said.stdout + said.stderr, outputs))
    notebook.assign(arguments.into, made)
    _Card(notebook, guess, key, arguments.into).show()


def _guesses(notebook: Notebook) -> dict[tuple[str, ...], str]:
    """Return what was guessed, by the choices and the cell."""
    guesses: dict[tuple[str, ...], str] = notebook.state.setdefault("course.guesses", {})
    return guesses


def _latest(outputs: Any) -> list[Any]:
    """The bundles of what was displayed; what has replaced another stands in its place."""
    found: dict[str, Any] = {}
    for output in outputs:
        found[(output.transient or {}).get("display_id") or uuid.uuid4().hex] = output.data
    return list(found.values())


class _Card:
    """A guess in the notebook: takes it, keeps it, and shows it from then on."""

    def __init__(self, notebook: Notebook, guess: Any, key: tuple[str, ...], name: str | None) -> None:
        from bls_notebook.display.widgets import live

        self._notebook, self._guess, self._key, self._name = notebook, guess, key, name
        self._id = uuid.uuid4().hex
        self._widget = live(lambda: guess_widget(guess)) if notebook.settings.widgets else None
        if self._widget is not None:
            self._widget.observe(self._take, "guess")

    def show(self, again: bool = False) -> None:

        width = self._notebook.settings.width
        shown = guess_display(self._guess, width=width, widget=self._widget)
        self._notebook.publish(shown, self._id, update=again)

    def _take(self, change: Any) -> None:
        from dataclasses import replace

        made = str(change["new"])
        self._guess = replace(self._guess, made=made)
        _guesses(self._notebook)[self._key] = made
        self._notebook.assign(self._name, made)
        self.show(again=True)


MAGIC = Magic(PARSER, bls_guess)
