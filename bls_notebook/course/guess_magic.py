"""``%%blsguess``: what a cell shows stays folded away until its reader has guessed it."""

from __future__ import annotations

import uuid
from typing import Any

from IPython.display import display
from IPython.utils.capture import capture_output

from bls_notebook.magics.cell_body import cell_body
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser, identifier
from bls_notebook.magics.parsing.words import Variables

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
    from .display import Guess, shown

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

        from .display import guess_widget

        self._notebook, self._guess, self._key, self._name = notebook, guess, key, name
        self._id = uuid.uuid4().hex
        self._widget = live(lambda: guess_widget(guess)) if notebook.settings.widgets else None
        if self._widget is not None:
            self._widget.observe(self._take, "guess")

    def show(self, again: bool = False) -> None:
        from .display import guess_display

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
