"""`OperationSpec`: the one declaration of a magic, a verb of ``%tritonrepo`` and a command for a shell.

The parser, the help, Tab completion and the manual's reference are made from it. An option that is not given is not
passed on, so the function's own default applies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bls_notebook as bls

from . import pb_utils
from .records.units import seconds_in

if TYPE_CHECKING:
    from .repository.repository import ModelRepository


# Types of options: converters of a word; an error names the value and the expected form.
_FLAGS = {
    "start": pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    "end": pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
}


def whole_number(least: int) -> Callable[[str], int]:
    """Return a converter of text to whole numbers from `least`."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or number >= 2**63:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from {least}")
        return number

    return convert


def counts(text: str) -> tuple[int, ...]:
    """Convert text such as ``1,2,4`` to numbers of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected counts from 1 to 64, such as 1,2,4")
    return tuple(int(word) for word in words)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number such as 1e-6") from None


def names(text: str) -> list[str]:
    """Convert comma-separated text to names."""
    parts = [name.strip() for name in text.split(",") if name.strip()]
    if not parts:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected names separated by commas, such as A,B")
    return parts


def key_and_value(text: str) -> dict[str, str]:
    """Convert ``KEY=VALUE``, which is split at the first equals sign."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected KEY=VALUE, such as engine_dir=/models/llm")
    return {key: value}


def seconds(text: str) -> float:
    """Convert a time with a unit to seconds. A number without a unit is an error, because it would be ambiguous."""
    duration = seconds_in(text)
    if duration is None or (duration and text.strip()[-1].isdigit()):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a time with its unit, such as 500ms or 2s")
    return duration


def identifier(text: str) -> str:
    """Check that text is a valid variable name."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a variable name, such as answer")
    return text


def new_file(text: str) -> str:
    """Check that a file's folder exists."""
    try:
        has_folder = Path(text).expanduser().parent.is_dir()
    except RuntimeError:  # `~name` for an unknown user
        has_folder = False
    if not has_folder:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a file in a folder that exists")
    return text


def new_file_with(*endings: str) -> Callable[[str], str]:
    """Return the check of a file to save to, before any work: its ending, and its folder."""

    def check(text: str) -> str:
        name = Path(text).name
        if not name.endswith(endings) or name in endings:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a name that ends with {' or '.join(endings)}")
        return new_file(text)

    return check


def sequence(text: str) -> tuple[int | str, int]:
    """Read a correlation ID and its flags: ``ID``, ``ID:start``, ``ID:end`` or ``ID:start,end``."""
    before, colon, after = text.rpartition(":")
    words = [word.strip() for word in after.split(",")]
    if not colon or not all(word in _FLAGS for word in words):
        before, words = text, []
    if not before or text.endswith(":") or (before.isdigit() and not 0 < int(before) < 2**64):
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected an ID (text, or a number from 1), then :start, :end or :start,end"
        )
    flags = 0
    for word in words:
        flags |= _FLAGS[word]
    return int(before) if before.isdigit() else before, flags


class UsageProblem(Exception):  # noqa: N818  (each surface raises its own error)
    """Options that contradict each other or lack something: a line that the user sees."""


@dataclass(frozen=True)
class Option:
    """An option or argument of an operation: its names, and keywords of `argparse.ArgumentParser.add_argument`.

    `surface` limits it to magics and verbs ("notebook") or to commands ("shell"). Tab offers models in this `state`, or
    in any other state if it begins with "not ".
    """

    names: tuple[str, ...]
    keywords: Mapping[str, Any]
    surface: str = ""
    state: str = ""

    @property
    def placeholder(self) -> str:
        """A positional argument in the usage."""
        metavar, nargs = self.keywords["metavar"], self.keywords.get("nargs")
        return f"[{metavar} ...]" if nargs == "*" else f"[{metavar}]" if nargs == "?" else metavar

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        text = self.keywords["help"].replace("%", "%%")  # argparse fills in placeholders
        action = parser.add_argument(*self.names, **{**self.keywords, "help": text})
        action.state = self.state  # type: ignore[attr-defined]


class _Merge(argparse.Action):
    """Merges the dicts of a repeated option."""

    def __call__(self, parser: object, namespace: object, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **values})


def option(
    names: str, metavar: str, help: str, type: Callable[[str], object] = str, surface: str = "", state: str = "",
    **keywords: Any,
) -> Option:  # fmt: skip
    """Return an option with a value, or, if its name has no dash, a positional argument."""
    return Option(tuple(names.split()), {"metavar": metavar, "help": help, "type": type, **keywords}, surface, state)


def pairs(
    names: str,
    metavar: str,
    help: str,
    type: Callable[[str], object] = key_and_value,
    surface: str = "",
    dest: str = "",
) -> Option:
    """Return an option that may be repeated; its pairs of key and value make a dict."""
    return option(names, metavar, help, type, surface, action=_Merge, **({"dest": dest} if dest else {}))


def flag(names: str, help: str, surface: str = "", **keywords: Any) -> Option:
    return Option(tuple(names.split()), {"help": help, "action": "store_true", **keywords}, surface)


@dataclass(frozen=True)
class OperationSpec:
    """The task of a magic, a verb or a command, and its options.

    `function` gets the given options as keywords; a text is the name of a public function. In a notebook, `notebook`
    replaces it if given, with a `MagicCall` as its first argument; in a shell, `shell` replaces it, which yields the
    records to print.
    """

    help: str
    """Begins with a sentence that says what the operation does: it alone is shown in lists of operations."""
    function: str | Callable[..., Any] = ""
    options: tuple[Option, ...] = ()
    examples: str = ""
    usage: str = ""
    form: str = "words"
    """The line: "words"; "inputs" with INPUT=EXPRESSION pairs, for `inputs`; "text" whose words keep their quotes."""
    notebook: Callable[..., Any] | None = None
    shell: Callable[..., Generator[Any, None, None]] | None = None
    failed: Callable[[Any], object] = lambda record: False
    """Whether a record makes the exit status of the command 1."""
    problems: Callable[[Any], Sequence[str]] = lambda value: ()
    """Why the result makes the magic's cell fail, if the setting `raise_errors` is on."""

    @property
    def summary(self) -> str:
        """The first sentence of the help, without its full stop."""
        return " ".join(self.help.split()).partition(". ")[0].rstrip(".")

    def call(self, **options: Any) -> Any:
        """Call the function."""
        function = getattr(bls, self.function) if isinstance(self.function, str) else self.function
        return function(**options)

    def add_options(self, parser: argparse.ArgumentParser, surface: str) -> None:
        """Add the options of a surface to a parser."""
        parser.argument_default = argparse.SUPPRESS
        options = [each for each in self.options if each.surface in ("", surface)]
        for each in [*options, JSON] if surface == "shell" else options:
            each.add_to(parser)
        if surface == "notebook" and (self.usage or self.form == "inputs"):
            words = " ".join(each.placeholder for each in options if not each.names[0].startswith("-"))
            parser.usage = f"%(prog)s {self.usage or f'{words} [INPUT=EXPRESSION ...] [options]'}"


@contextmanager
def opened(repository: str, models: Sequence[str] | None = None, **options: Any) -> Iterator[ModelRepository]:
    """Open a repository for a command, and load models with their callees. The output of models goes to stderr."""
    from .repository.call_order import load_with_callees

    with redirect_stdout(sys.stderr), bls.ModelRepository(repository, **options) as repo:
        if models is not None:
            load_with_callees(repo, models)
        yield repo


def serve_until_interrupt(server: Any) -> Generator[Any, None, None]:
    """Yield the record of a server, and wait until Ctrl-C or until the server ends, which is a failure."""
    try:
        with server:
            yield server.record
            print("Ctrl-C stops it.", file=sys.stderr)
            server.wait()
    except KeyboardInterrupt:
        return
    except bls.BLSError as error:
        print(error, file=sys.stderr)
    sys.exit(1)


# Options of several operations.
MODEL = option("model", "MODEL", "the model's name", state="READY")
MODELS = option("names", "MODEL", "models (default: all)", nargs="*", state="READY")
PARAMETERS = option(
    "--parameters", "NAME=VALUE,...", "request parameters: name=value, or an expression for a dict", str, "notebook"
)
SEQUENCE = option("--sequence", "ID[:start,end]", "correlation ID, then :start, :end or both", sequence, "notebook")
INTO = option("--into", "NAME", "assign the result to this variable", identifier)
_SAVED = new_file_with(".json", ".json.gz", ".html")
SAVE = option("--save", "FILE", ".json or .json.gz for bls.open_file, .html for a page", _SAVED)
QUIET = flag("-q --quiet", "show nothing, and return None", "notebook")
JSON = flag("--json", "print JSON, a line for each result", "shell")
REPOSITORY = option(
    "repository", "REPOSITORY", "a folder with a sub-folder for each model; their code runs", str, "shell"
)
SEED = option("--seed", "N", "seed of generated values (default: 0)", whole_number(0))
TOLERANCE = option("--tolerance", "X", "allowed difference of floats, absolute or relative (default: 0)", number)
ULPS = option("--ulps", "N", "allowed difference in units in the last place (default: 0)", whole_number(0))
FILL = pairs(
    "--fill",
    "KEY=VALUE",
    "fill ${KEY}, or the parameter KEY, in each config.pbtxt (MODEL.KEY: in that of one model); other templates get "
    "the value of an environment variable or a harmless default",
)


def timeout(help: str = "timeout of a request (default: none)", name: str = "--timeout") -> Option:
    """Return an option for a time with its unit."""
    return option(name, "TIME", help, seconds)
