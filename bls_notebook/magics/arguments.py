"""Arguments of magics: split a line into words, parse options and INPUT=EXPRESSION pairs, evaluate Python
expressions.

Spaces inside quotes and brackets do not split. A bad argument is one clear line; the help is a magic's
docstring.
"""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.error import UsageError

from bls_notebook import pb_utils
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


_FLAGS = {
    "start": pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    "end": pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
}
SequenceFlags = tuple[int | str, int]


def sequence(text: str) -> SequenceFlags:
    """Return correlation ID and flags of ``ID``, ``ID:start``, ``ID:end`` or ``ID:start,end``."""
    before, colon, after = text.rpartition(":")
    words = [word.strip() for word in after.split(",")]
    if not colon or not all(word in _FLAGS for word in words):
        before, words = text, []
    if not before or (before.isdigit() and not 0 < int(before) < 2**64):
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected an ID (text, or a number from 1), then :start, :end or :start,end"
        )
    flags = 0
    for word in words:
        flags |= _FLAGS[word]
    return int(before) if before.isdigit() else before, flags


def parameters_of(text: str | None, variables: Variables) -> dict[str, Any] | None:
    """Return request parameters of ``name=value,...`` or of an expression for a dict; else raise a
    UsageError.
    """
    if text is None:
        return None
    where = "%bls: --parameters"
    pairs = [_pair(word.text.strip()) for word in split_words(text, lambda char: char == ",")]
    if any(pair is None for pair in pairs):
        value = evaluate(text, variables, where)
    else:
        value = {name: evaluate(of, variables, f"{where}: {name}") for name, of in filter(None, pairs)}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{where}: got {text!r} of type {type(value).__name__}, expected name=value,name=value or a dict."
        )
    for name, item in value.items():
        if not isinstance(name, str) or not isinstance(item, (str, int, bool)):
            raise UsageError(
                f"{where}: {name!r} is of type {type(item).__name__}; expected text, a whole number, True or False."
            )
    return dict(value)


def _pair(piece: str) -> tuple[str, str] | None:
    name, equals, value = piece.partition("=")
    return (name, value) if equals and name.isidentifier() and not value.startswith("=") else None


# Not `==`, and a name as tensors have it: letters, digits and what frameworks put between.
_INPUT = re.compile(r"([A-Za-z_][\w.:/\-]*)=(?!=)")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?==|\d*$)")


@dataclass
class RequestLine:
    """What a line of ``%bls`` says: words for the parser (model and options), expressions by input name."""

    words: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)

    def values(self, variables: Variables, magic: str) -> dict[str, Any]:
        """Return what the expressions are worth, by input name; `magic` is whose line it is."""
        return {name: evaluate(of, variables, f"{magic}: input {name}") for name, of in self.inputs.items()}


def input_name(word: str) -> str:
    """Return the name where the word begins an input, else nothing."""
    found = _INPUT.match(word)
    return found[1] if found else ""


def option_in(parser: Parser, word: str) -> str:
    """Return the option where the word is one, else nothing; `-x` is one only where it is known."""
    found = _OPTION.match(word)
    return found[1] if found and (found[1].startswith("--") or found[1] in parser.options) else ""


def read_line(parser: Parser, line: str, variables: Variables) -> RequestLine:
    """Read a line; where it is wrong, a UsageError says what it is and what was expected.

    An expression ends where the next input or option begins, so `a + b` needs no brackets.
    """
    result = RequestLine()
    words = parser.words_of(line)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if option_in(parser, word.text):
            position = _read_option(parser, words, position, result.words, variables)
        elif name := input_name(word.text):
            while position < len(words):
                if input_name(words[position].text) or option_in(parser, words[position].text):
                    break
                position += 1
            expression = line[word.start + len(name) + 1 : words[position - 1].end].strip()
            if not expression:
                parser.error(f"input {name!r} has no value; expected {name}=expression")
            if name in result.inputs:
                parser.error(f"input {name!r} is given twice")
            result.inputs[name] = expression
        elif (result.inputs or not parser.takes_several) and any(not w.startswith("-") for w in result.words):
            parser.error(f"got {word.text!r}, expected INPUT=expression, such as INPUT0=[1, 2]")
        else:
            result.words.append(expanded(word.plain, variables))
    return result


def _read_option(parser: Parser, words: list[Word], position: int, into: list[str], variables: Variables) -> int:
    """Read an option and its value, as one word for the parser; the position after it is returned."""
    word = words[position - 1].text
    option = option_in(parser, word)
    if option not in parser.options:
        parser.refuse(word)
    if not parser.takes_value(option) or word != option:
        into.append(expanded(word, variables))
        return position
    value = ""
    while position < len(words) and (not value or value.endswith(",")):  # a list may have spaces
        value += words[position].text
        position += 1
    if not value:
        parser.error(f"{option} needs a value")
    if option != "--parameters":  # whose braces are a dict's
        value = expanded(value, variables)
    into.append(f"{option}={value}" if option.startswith("--") else f"{option}{value}")
    return position
