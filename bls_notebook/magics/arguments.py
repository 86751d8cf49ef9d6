"""Arguments of magics: words of a line, options, INPUT=EXPRESSION pairs, Python expressions.

Spaces inside quotes and brackets do not separate words. A bad argument raises a UsageError of one line.
"""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from IPython.core.error import UsageError

from bls_notebook.engine.exception_text import describe, traceback_of
from bls_notebook.operations import OperationSpec

_CLOSING = {"(": ")", "[": "]", "{": "}"}


class UnfinishedError(Exception):
    """A quote or bracket, `opener`, is never closed; `start` is the index at which its word begins."""

    def __init__(self, opener: str, start: int) -> None:
        super().__init__(f"{opener} is never closed")
        self.opener = opener
        self.start = start


@dataclass(frozen=True)
class Word:
    """A word of a line with its quotes, and the indices of its start and end."""

    text: str
    start: int
    end: int

    @property
    def plain(self) -> str:
        """The word without surrounding quotes."""
        text = self.text
        if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0] and text[0] not in text[1:-1]:
            return text[1:-1]
        return text


def split_words(line: str) -> list[Word]:
    """Return the words of a line; raise UnfinishedError."""
    words: list[Word] = []
    start, position = -1, 0
    open_brackets: list[str] = []
    while position < len(line):
        char = line[position]
        if char.isspace() and not open_brackets:
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
    """Return the value of an expression; errors in it are a UsageError that begins with `where`.

    Exceptions from functions that the expression calls pass through with their traceback.
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
        traceback = traceback_of(error)
        if traceback is not None and traceback.tb_next is not None and traceback.tb_next.tb_next is not None:
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
        return word  # not an expression: braces and dollar signs are text


_WIDTH = 92


class HelpWanted(Exception):  # noqa: N818  (not an error)
    """The line asks for help; the message is the help text."""


class Parser(argparse.ArgumentParser):
    """Parses the line of a magic or verb; `prog` is its name, such as ``%bls``."""

    def __init__(self, operation: OperationSpec, prog: str) -> None:
        self.options: dict[str, argparse.Action] = {}
        self.word: argparse.Action | None = None  # the last positional argument
        self.operation = operation
        super().__init__(
            prog,
            description=textwrap.fill(" ".join(operation.help.split()), _WIDTH),
            epilog=textwrap.indent(textwrap.dedent(operation.examples).strip("\n"), "  ") or None,
            formatter_class=_Formatter,
            argument_default=argparse.SUPPRESS,
            add_help=False,
            allow_abbrev=False,
        )
        self.epilog = self.epilog and f"examples:\n{self.epilog}\n"
        self.color = False  # Python 3.14 would colour the docstring
        self.add_argument("-h", "--help", action="store_true", help="show this help")
        operation.add_options(self, "notebook")

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action:
        """Add an argument, as in `argparse`."""
        action = super().add_argument(*names, **keywords)
        self.options.update(dict.fromkeys(action.option_strings, action))
        if not action.option_strings:
            self.word = action
        return action

    def takes_value(self, option: str) -> bool:
        """True if this option takes a value; an unknown option takes none."""
        return option in self.options and self.options[option].nargs != 0

    def parse(self, line: str, variables: Variables) -> dict[str, Any]:
        """Return the given options of a line, and its `inputs`; raise UsageError of one line, or HelpWanted.

        ``$name`` and ``{expression}`` are replaced by their values, except in a line of Python expressions.
        """
        request = RequestLine()
        if self.operation.form == "inputs":
            request = read_line(self, line, variables)
        elif self.operation.form == "text":
            request.words = [word.text for word in self.words_of(line)]
        else:
            request.words = [expanded(word.plain, variables) for word in self.words_of(line)]
        if "-h" in request.words or "--help" in request.words:
            raise HelpWanted(self.format_help())
        arguments, rest = super().parse_known_args(request.words)
        for word in rest:
            self.refuse(word)
        options = vars(arguments)
        if self.operation.form == "inputs":
            where = f"{self.prog}: input"
            options["inputs"] = {
                name: evaluate(of, variables, f"{where} {name}") for name, of in request.inputs.items()
            }
        if "parameters" in options:
            options["parameters"] = parameters_of(options["parameters"], variables, self.prog)
        if "sequence" in options:
            options["correlation_id"], options["flags"] = options.pop("sequence")
        return options

    def words_of(self, line: str) -> list[Word]:
        """Return the words of a line; raise UsageError if a quote or bracket is never closed."""
        try:
            return split_words(line)
        except UnfinishedError as error:
            self.error(f"{error} in {line[error.start :]!r}")

    def refuse(self, word: str) -> NoReturn:
        """Raise a UsageError about an unknown option or an extra word."""
        option = word.partition("=")[0]
        known = sorted(o for o in self.options if o.startswith("--"))
        if not option.startswith("-"):
            self.error(f"unexpected argument {word!r}")
        close = difflib.get_close_matches(option, known, 1)
        self.error(
            f"unknown option {option!r}; "
            + (f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}")
        )

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError of one line, which IPython shows without a traceback."""
        message = message.removeprefix("argument ")
        message = message.replace("the following arguments are required:", "missing:")
        sign = "" if message.endswith(("?", ".")) else "."
        # Without the verb, because IPython has no help for `%tritonrepo load?`.
        raise UsageError(f"{self.prog}: {message}{sign} {self.prog.split()[0]}? shows the help.")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formats help at a fixed width, independent of the terminal."""

    def __init__(self, prog: str, **keywords: Any) -> None:
        super().__init__(prog, max_help_position=26, width=_WIDTH)


def parameters_of(text: str, variables: Variables, magic: str) -> dict[str, Any]:
    """Read request parameters, ``name=value,...`` or an expression for a dict; raise UsageError."""
    where = f"{magic}: --parameters"
    value = evaluate(f"dict({text})", variables, where)
    for name, item in value.items():
        if not isinstance(name, str) or not isinstance(item, (str, int, bool)):
            raise UsageError(
                f"{where}: {name!r} is of type {type(item).__name__}; expected text, a whole number, True or False."
            )
    return dict(value)


# Names of tensors contain letters, digits and the separators of frameworks. `==` is a comparison.
_INPUT = re.compile(r"([A-Za-z_][\w.:/\-]*)=(?!=)")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?==|\d*$)")


@dataclass
class RequestLine:
    """A line of ``%bls``: words for the parser (model and options), and expressions by input name."""

    words: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)


def input_name(word: str) -> str:
    """Return the input's name if the word begins with ``NAME=``, else ""."""
    match = _INPUT.match(word)
    return match[1] if match else ""


def option_in(parser: Parser, word: str) -> str:
    """Return the option's name if the word is an option, else ""; ``-x`` counts only if the parser has it."""
    match = _OPTION.match(word)
    return match[1] if match and (match[1].startswith("--") or match[1] in parser.options) else ""


def read_line(parser: Parser, line: str, variables: Variables) -> RequestLine:
    """Read a line of ``%bls`` into words and inputs; raise UsageError with got and expected.

    An expression ends where the next input or option begins, so `a + b` needs no brackets.
    """
    result = RequestLine()
    words = parser.words_of(line)
    takes_many = parser.word is not None and parser.word.nargs == "*"
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
                parser.error(f"input {name!r} has no value, expected {name}=expression")
            if name in result.inputs:
                parser.error(f"input {name!r} is given twice")
            result.inputs[name] = expression
        elif (result.inputs or not takes_many) and any(not w.startswith("-") for w in result.words):
            parser.error(f"got {word.text!r}, expected INPUT=expression, such as INPUT0=[1, 2]")
        else:
            result.words.append(expanded(word.plain, variables))
    return result


def _read_option(parser: Parser, words: list[Word], position: int, into: list[str], variables: Variables) -> int:
    """Append an option and its value to `into` as one word; return the position after them."""
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
    if option != "--parameters":  # its braces may be a dict
        value = expanded(value, variables)
    into.append(f"{option}={value}" if option.startswith("--") else f"{option}{value}")
    return position
