"""Argument parsers that suit a notebook: one clear line for a bad argument, help as a docstring."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from bls_notebook.records.quantities import seconds_in

from .words import UnfinishedError, Variables, Word, expanded, split_words

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


def whole_number(least: int, unit: str = "") -> Callable[[str], int]:
    """Return a converter to whole numbers."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or number >= 2**63:
            of = f" of {unit}" if unit else ""
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number{of} from {least}")
        return number

    return convert


def counts(text: str) -> tuple[int, ...]:
    """Read numbers of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected counts from 1 to 64, such as 1,2,4")
    return tuple(int(word) for word in words)


def add_tolerance(parser: Parser) -> None:
    """Add the options that say how far the floats of two answers may be apart."""
    parser.add_argument(
        "--tolerance", type=number, default=0.0, metavar="X",
        help="floats may differ by X, absolutely or in proportion (default: not at all)",
    )  # fmt: skip
    ulps = "or by N neighbouring floats"
    parser.add_argument("--ulps", type=whole_number(0), default=0, metavar="N", help=ulps)


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number such as 1e-6") from None


def identifier(text: str) -> str:
    """Return the name of a variable."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected the name of a variable, such as answer")
    return text


def names(text: str) -> list[str]:
    """Return the names of a list with commas."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected names with commas between, such as A,B")
    return found


def key_and_value(text: str) -> tuple[str, str]:
    """Return what stands before and after the first equals sign."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected KEY=VALUE, such as engine_dir=/models/llm")
    return key, value


def seconds(text: str) -> float:
    """Return a time."""
    found = seconds_in(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a time such as 500ms or 2s")
    return found
