"""Arguments of magics: split a line into words, parse options, evaluate Python expressions.

Spaces inside quotes and brackets do not split. A bad argument is one clear line; the help is a magic's
docstring.
"""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.error import UsageError

from bls_notebook.commands import add_tolerance as add_tolerance
from bls_notebook.commands import counts as counts
from bls_notebook.commands import key_and_value as key_and_value
from bls_notebook.commands import names as names
from bls_notebook.commands import number as number
from bls_notebook.commands import seconds as seconds
from bls_notebook.commands import whole_number as whole_number
from bls_notebook.engine.exception_text import describe, traceback_of

_CLOSING = {"(": ")", "[": "]", "{": "}"}


class UnfinishedError(Exception):
    """A quote or bracket, the `opener`, that is left open; `start` is where the word that it is in begins."""

    def __init__(self, opener: str, start: int) -> None:
        super().__init__(f"{opener} is never closed")
        self.opener = opener
        self.start = start


@dataclass(frozen=True)
class Word:
    """A word of a line, as it is written, with where it begins and ends."""

    text: str
    start: int
    end: int

    @property
    def plain(self) -> str:
        """The word without the quotes around it, if it has any."""
        text = self.text
        if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0] and text[0] not in text[1:-1]:
            return text[1:-1]
        return text


def split_words(line: str, at: Callable[[str], bool] = str.isspace) -> list[Word]:
    """Return the words of a line, parted by characters of which `at` is true; raise UnfinishedError."""
    words: list[Word] = []
    start, position = -1, 0
    open_brackets: list[str] = []
    while position < len(line):
        char = line[position]
        if at(char) and not open_brackets:
            if start >= 0:
                words.append(Word(line[start:position], start, position))
            start, position = -1, position + 1
            continue
        start = position if start < 0 else start
        if char in "'\"":
            position = _after_quote(line, position, start)
            continue
        if char in _CLOSING:
            open_brackets.append(char)
        elif open_brackets and char == _CLOSING[open_brackets[-1]]:
            open_brackets.pop()
        position += 1
    if open_brackets:
        raise UnfinishedError(open_brackets[-1], start)
    if start >= 0:
        words.append(Word(line[start:], start, len(line)))
    return words


def _after_quote(line: str, position: int, start: int) -> int:
    quote = line[position : position + 3]
    if quote != line[position] * 3:
        quote = line[position]
    position += len(quote)
    while position < len(line):
        if line[position] == "\\":
            position += 2
        elif line.startswith(quote, position):
            return position + len(quote)
        else:
            position += 1
    raise UnfinishedError(quote, start)


Variables = dict[str, Any]


def evaluate(expression: str, variables: Variables, where: str) -> Any:
    """Return the value of an expression; `where` says what it is for, to begin the message of a UsageError
    with.

    What functions of the notebook raise inside it comes through as it is, with its traceback.
    """
    expression = expression.strip()
    try:
        code = compile(expression, f"<{where}>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(f"{where}: got {expression!r}, expected a Python expression: {reason}.") from None
    try:
        return eval(code, variables)
    except Exception as error:
        ours = traceback_of(error)
        if ours is not None and ours.tb_next is not None and ours.tb_next.tb_next is not None:
            raise
        raise UsageError(f"{where}: {expression}: {describe(error)}") from None


def expanded(word: str, variables: Mapping[str, Any]) -> str:
    """Return a word with ``$name`` and ``{expression}`` replaced by their values, as in other magics."""
    if "$" not in word and "{" not in word:
        return word
    from IPython.utils.text import DollarFormatter

    try:
        return DollarFormatter().vformat(word, args=[], kwargs=variables)
    except Exception:
        return word  # what is no expression was meant as it stands


_WIDTH = 92


class HelpWanted(Exception):  # noqa: N818  (it is a wish, no error)
    """The line asks for help; the text is the help."""


class Parser(argparse.ArgumentParser):
    """Parses the words of a magic's line; ``prog`` is the magic as it is typed, such as ``%bls``."""

    def __init__(self, prog: str, description: str, examples: str = "") -> None:
        self.options: dict[str, argparse.Action] = {}
        self._word: argparse.Action | None = None  # what takes the words that are no option's
        super().__init__(
            prog,
            description=textwrap.fill(description, _WIDTH),
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=_Formatter,
            add_help=False,
            allow_abbrev=False,
        )
        self.color = False  # Python 3.14 would colour the docstring
        self.add_argument("-h", "--help", action="store_true", help="show this help")

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action:
        """Add an argument, as in `argparse`."""
        action = super().add_argument(*names, **keywords)
        self.options.update(dict.fromkeys(action.option_strings, action))
        if not action.option_strings:
            self._word = action
        return action

    def takes_value(self, option: str) -> bool:
        """Whether a word follows this option; an option that is not known takes none."""
        return option in self.options and self.options[option].nargs != 0

    def takes_many(self, option: str) -> bool:
        """Whether any number of words may follow this option."""
        return option in self.options and self.options[option].nargs == "+"

    @property
    def takes_several(self) -> bool:
        """Whether any number of words may stand there that are no option's."""
        return self._word is not None and self._word.nargs == "*"

    def expects(self, option: str = "") -> str:
        """Return what the help calls the value of an option, or, without one, a word that is no option's."""
        action = self.options.get(option) if option else self._word
        return action.metavar if action is not None and isinstance(action.metavar, str) else ""

    def choices(self, option: str) -> list[str]:
        """Return the values that an option may have, where those are few."""
        action = self.options.get(option)
        return list(action.choices) if action is not None and action.choices else []

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the arguments; what is wrong is one line of a UsageError, and HelpWanted brings the help."""
        if "-h" in words or "--help" in words:
            raise HelpWanted(self.format_help())
        arguments, rest = super().parse_known_args(list(words))
        for word in rest:
            self.refuse(word)
        return arguments

    def words_of(self, line: str) -> list[Word]:
        """Return the words of a line, or raise UsageError where a quote or bracket is left open."""
        try:
            return split_words(line)
        except UnfinishedError as error:
            self.error(f"{error} in {line[error.start :]!r}")

    def parse_line(self, line: str, variables: Variables) -> argparse.Namespace:
        """Return the arguments of a whole line, variables of the notebook put in; raises as `parse` does."""
        return self.parse([expanded(word.plain, variables) for word in self.words_of(line)])

    def refuse(self, word: str) -> NoReturn:
        """Say that a word is not understood."""
        option = word.partition("=")[0]
        known = sorted(o for o in self.options if o.startswith("--"))
        if not option.startswith("-"):
            self.error(f"got {word!r}, which is one word too many")
        close = difflib.get_close_matches(option, known, 1)
        self.error(
            f"unknown option {option!r}; "
            + (f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}")
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line; no traceback, and the notebook lives on."""
        message = message.removeprefix("argument ")
        message = message.replace("the following arguments are required:", "missing:")
        sign = "" if message.endswith(("?", ".")) else "."
        # A magic's name without its verb: `%tritonrepo load?` would not be found.
        raise UsageError(f"{self.prog}: {message}{sign} {self.prog.split()[0]}? shows the help.")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Of one width, wherever the docstring is made."""

    def __init__(self, prog: str, **keywords: Any) -> None:
        super().__init__(prog, max_help_position=26, width=_WIDTH)


def identifier(text: str) -> str:
    """Return the name of a variable."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected the name of a variable, such as answer")
    return text


def new_file(text: str) -> str:
    """Return the name of a file that can be written: its folder exists."""
    try:
        is_possible = Path(text).expanduser().parent.is_dir()
    except RuntimeError:  # of a user who does not exist
        is_possible = False
    if not is_possible:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a file in a folder that exists")
    return text
