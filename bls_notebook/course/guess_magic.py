"""``%%blsguess``: the output of a cell stays folded until its reader has guessed it.

With a kernel, a widget takes the guess and then unfolds the output. Without one, the choices are a line of text, and
the reader opens the fold.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any

from IPython.display import display
from IPython.utils.capture import capture_output

from bls_notebook.display import (
    VIEW,
    Display,
    Html,
    covered,
    document_html,
    document_text,
    join,
    live,
    new_place,
    prose,
    tag,
    text,
    widget_source,
)
from bls_notebook.display.document import Block, Both, Document, Fold, Line, Piece
from bls_notebook.magics import MagicCall, Notebook, cell_body
from bls_notebook.operations import OperationSpec, UsageProblem, identifier, option
from bls_notebook.records import Record

LONGEST = 200  # characters of a guess
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_IMAGES = ("image/svg+xml", "image/png", "image/jpeg")


@dataclass(frozen=True, slots=True, repr=False)
class Shown(Record):
    """One output of a cell, as text and as markup."""

    text: str = ""
    html: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Guess(Record):
    """A guess: one of `choices`, or any text if there are none. `made` is the guess, empty before it.

    `outcome` is the output of the cell, `right` the right choice or, if unknown, empty.
    """

    choices: tuple[str, ...] = ()
    made: str = ""
    outcome: tuple[Shown, ...] = ()
    right: str = ""


def shown(printed: str, outputs: Iterable[Mapping[str, Any]]) -> tuple[Shown, ...]:
    """Return the printed text and the displays (MIME bundles) of a cell, for use inside another display.

    Lines that were overwritten, for example by a progress bar, and colors of a terminal are left out.
    """
    plain_lines = _COLOR.sub("", printed).splitlines()
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in plain_lines)
    words = "\n".join(lines).strip("\n")
    outcome = [Shown(words, tag("pre", prose(words)))] if words else []
    for bundle in outputs:
        html, plain = bundle.get("text/html"), bundle.get("text/plain", "")
        image = next((kind for kind in _IMAGES if kind in bundle), None)
        if html is None and VIEW in bundle:
            continue  # a widget alone, such as a progress bar
        if html is None and image is not None:
            html = _image(image, bundle[image], plain)
        outcome.append(Shown(plain, tag("pre", prose(plain)) if html is None else html))
    return tuple(output for output in outcome if output.text or output.html)


def _image(kind: str, data: str | bytes, alt: str) -> Html:
    if kind == "image/svg+xml" or isinstance(data, bytes):
        data = base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
    source = f"data:{kind};base64,{''.join(data.split())}"
    return Html(f'<img class="bls-guess-image" alt="{text(alt)}" src="{text(source)}">')


def guess_display(guess: Guess, *, width: int = 100, widget: Any = None) -> Display:
    """Show a guess and the output below it, which HTML folds until the guess is made.

    `widget` takes the guess while a kernel runs.
    """
    question = _question(guess)
    if widget is not None:
        question = Piece(question.text, covered(question.html, widget))
    outcome: list[Block] = [_outcome(output) for output in guess.outcome]
    document = Document([Line([question]), Fold("What happened", outcome, is_open=bool(guess.made))], styles="guess")
    return Display(document_text(document, width), document_html(document), widget)


def _question(guess: Guess) -> Piece:
    asked = "Your guess:" if guess.made else "Your guess?"
    texts, pieces = [], []
    for choice in dict.fromkeys([*guess.choices, *([guess.made] if guess.made else [])]):
        is_made, mark = guess.made == choice, "✓ " if guess.made and choice == guess.right else ""
        texts.append(f"{mark}[{choice}]" if is_made else f"{mark}{choice}")
        pieces.append(tag("span", mark, tag("b", choice) if is_made else choice, cls="guess-choice"))
    line = f"{asked} {' · '.join(texts)}".rstrip()
    return Piece(line, tag("span", tag("b", asked), " ", join(*pieces, by=" · ")))


def code_of(choice: str) -> str:
    """Return the code of a choice for ``--right``, which does not give the answer away."""
    return sha256(choice.encode()).hexdigest()[:6]


def _outcome(output: Shown) -> Both:
    return Both(lambda _: output.text.split("\n"), Html(output.html))


def guess_widget(guess: Guess) -> Any:
    """Create the widget that takes a guess; its trait ``guess`` is empty until then. Needs anywidget."""
    right = guess.right if guess.made else ""
    return _widget_class()(choices=list(guess.choices), guess=guess.made, right=right, place=new_place())


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class GuessWidget(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
        """Takes one guess; see `guess_widget`."""

        _esm = widget_source("guess.js")
        _css = widget_source("guess.css")

        choices: Any = traitlets.List(traitlets.Unicode()).tag(sync=True)
        guess = traitlets.Unicode().tag(sync=True)
        right = traitlets.Unicode().tag(sync=True)  # empty before the guess
        place = traitlets.Unicode().tag(sync=True)

        @traitlets.validate("guess")
        def _short(self, proposal: Any) -> str:
            return " ".join(str(proposal["value"]).split())[:LONGEST]

    return GuessWidget


def _guess(call: MagicCall, choices: Sequence[str] = (), right: str = "", into: str = "") -> None:
    """Run a cell and fold its output until it was guessed."""
    __tracebackhide__ = True
    notebook, cell = call.notebook, call.cell
    codes = {code_of(choice): choice for choice in choices}
    if right and right not in codes:
        known = ", ".join(f"{code} for {choice!r}" for code, choice in codes.items())
        raise UsageProblem(f"--right: got {right!r}, expected the code of a choice: {known or 'there are none'}")
    body = cell_body(notebook, "%%blsguess", cell)
    with capture_output() as captured:
        try:
            value = body()
            if value is not None and not cell.rstrip().endswith(";"):
                display(value)  # type: ignore[no-untyped-call]
            failed = None
        except BaseException as error:
            failed = error
    if failed is not None:
        captured.show()  # type: ignore[no-untyped-call]  # a failed cell has nothing to guess
        raise failed
    outputs = _latest(captured.outputs)
    key = (*choices, cell.strip())
    made = _guesses(notebook).get(key, "")
    guess = Guess(tuple(choices), made, shown(captured.stdout + captured.stderr, outputs), codes.get(right, ""))
    notebook.assign(into, made)
    _Card(notebook, guess, key, into).show()


def _guesses(notebook: Notebook) -> dict[tuple[str, ...], str]:
    """Return the guesses so far, by choices and cell."""
    guesses: dict[tuple[str, ...], str] = notebook.state.setdefault("course.guesses", {})
    return guesses


def _latest(outputs: Any) -> list[Any]:
    """Return the MIME bundles of the displays; an updated display has only its last bundle."""
    return list({(o.transient or {}).get("display_id") or uuid.uuid4().hex: o.data for o in outputs}.values())


class _Card:
    """The display of a guess: takes the guess, keeps it, and updates itself."""

    def __init__(self, notebook: Notebook, guess: Any, key: tuple[str, ...], name: str | None) -> None:
        self._notebook, self._guess, self._key, self._name = notebook, guess, key, name
        self._id = uuid.uuid4().hex
        self._widget = live(lambda: guess_widget(guess)) if notebook.settings.widgets else None
        if self._widget is not None:
            self._widget.observe(self._take, "guess")

    def show(self, again: bool = False) -> None:
        width = self._notebook.settings.width
        self._notebook.publish(guess_display(self._guess, width=width, widget=self._widget), self._id, update=again)

    def _take(self, change: Any) -> None:
        made = str(change["new"])
        self._guess = replace(self._guess, made=made)
        _guesses(self._notebook)[self._key] = made
        self._notebook.assign(self._name, made)
        if self._widget is not None:
            self._widget.right = self._guess.right
        self.show(again=True)


GUESS = OperationSpec(
    """Run the cell and fold its output until the reader has guessed it: one of the CHOICES, or any text if there are
    none. The guess stays when the cell runs again, and is saved with the notebook. Without a kernel, the choices are
    a line of text and the reader opens the fold. In a lesson, ask in the text above, show the result here, and
    explain it below. After the guess all choices stay visible, and --right CODE marks the right one. The cell may
    begin with another cell magic. Examples: docs/tutorials/index.md.""",
    options=(
        option("choices", "CHOICE", "a possible guess; quote several words", nargs="*"),
        option("--right", "CODE", "code of the right choice, to be marked after a guess; ? shows the codes"),
        option("--into", "NAME", 'assign the guess to this variable ("" before the guess)', identifier),
    ),
    examples="""
    %%blsguess "as long as one" "half as long" "as long as before"
    %blsprofile scanner IMAGE=image -n 8

    %%blsguess --into bytes_left
    %%blsmemory
    answer = %bls leaky IN=images
    """,
    notebook=_guess,
)
