"""Completions in a magic's line: verbs, options, models, tensors, devices, variables and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.extending import registry
from bls_notebook.magics import Parser, UnfinishedError, input_name, parser_of, split_words
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE

if TYPE_CHECKING:
    from bls_notebook.records import ModelRecord


_LINE = re.compile(r"^\s*(?:[\w.\[\]'\", ]+=\s*)?(?P<magic>%\w+)\s(?P<rest>.*)$")
_CELL = re.compile(r"^(?P<magic>%%\w+)\s(?P<rest>.*)$")


@dataclass(frozen=True)
class MagicLine:
    """A magic's line up to the cursor: complete words, and the `fragment` at the cursor.

    `magic` includes its signs, such as ``%bls``. `opened` is true if the fragment begins with an open quote: it is a
    Python string or a path.
    """

    magic: str
    words: tuple[str, ...]
    fragment: str
    opened: bool = False


def magic_line(text: str, first_line: bool) -> MagicLine | None:
    """Return the magic's line that ends at the cursor; None for other code.

    The result is also None inside an open bracket, or a quote that opens within a word, because that is Python code.
    """
    match = _LINE.match(text) or (_CELL.match(text) if first_line else None)
    if match is None or match["magic"] not in registry().keys("magics"):
        return None
    rest, opened = match["rest"], ""
    try:
        split = split_words(rest)
    except UnfinishedError as error:
        rest, opened = rest[: error.start], rest[error.start :]
        if opened[0] not in "'\"":
            return None
        split = split_words(rest)
    words = [word.text for word in split]
    if opened:
        return MagicLine(match["magic"], tuple(words), opened, True)
    fragment = words.pop() if words and not text[-1].isspace() else ""
    return MagicLine(match["magic"], tuple(words), fragment)


def suggest(
    line: MagicLine, models: Sequence[ModelRecord], variables: Mapping[str, Any]
) -> tuple[str, list[str]] | None:
    """Return the part of the fragment to replace, and its completions; None in a Python expression."""
    fragment, words = line.fragment, line.words
    parser, _ = parser_of(line.magic, "".join(words[:1]))
    if parser.prog == "%tritonrepo":
        return fragment, [] if words else _begin(fragment, registry().keys("verbs"))
    if parser.prog != line.magic:
        words = words[1:]  # without the verb
    if fragment.startswith("-"):
        return fragment, _options(parser, line)
    option, position = _awaited_option(parser, words)
    action = parser.options.get(option, parser.word) if option else parser.word
    expected = action.metavar if action is not None and isinstance(action.metavar, str) else ""
    if expected in ("FILE", "FOLDER", "WHAT"):
        configs = _begin(fragment, _texts(variables)) if expected == "WHAT" else []
        return fragment, configs + paths(fragment, folders=expected == "FOLDER")
    if option in ("--input", "--output"):
        return _datatypes(fragment, position)
    if expected == "VALUE":
        values = _values(line, models, variables)
        return (fragment, values) if values else None
    if line.opened:
        return fragment, []
    metavar = expected.removesuffix(",...")
    begun = fragment if metavar == expected else fragment.rpartition(",")[2]
    if metavar in registry().keys("completions"):
        found = _begin(begun, registry().load("completions", metavar)(words, models))
        return begun, found or ([] if option else _options(parser, line))
    if option:
        choices = action.choices if action is not None and action.choices else ()
        return begun, _begin(begun, _option_values(metavar, choices, _model(parser, words), models))
    return _words(parser, action, line, words, models)


def _option_values(
    metavar: str, choices: Iterable[str], model: str | None, models: Sequence[ModelRecord]
) -> Iterable[str]:
    if metavar == "MODEL":
        return dict.fromkeys(model.name for model in models)
    if metavar == "DEVICE":
        return dict.fromkeys([*(device.name for device in bls.list_devices()), "gpu:0"])
    if metavar == "OUTPUT":
        record = _ready_model(model, models)
        return [tensor.name for tensor in record.outputs] if record is not None else []
    return choices


def _words(
    parser: Parser, action: Any, line: MagicLine, words: Sequence[str], models: Sequence[ModelRecord]
) -> tuple[str, list[str]] | None:
    """Complete a positional argument or the name of an input."""
    fragment, named = line.fragment, _model(parser, words)
    takes_inputs = parser.operation.form == "inputs"
    if takes_inputs and input_name(fragment):
        return None
    if action is not None and action.metavar == "MODEL" and (named is None or action.nargs in ("*", "+")):
        fitting = [m for m in models if _is_in(action.state, m) and m.name not in words]
        return fragment, _begin(fragment, dict.fromkeys(m.name for m in fitting)) or _options(parser, line)
    model = _ready_model(named, models) if takes_inputs else None
    used = {input_name(word) for word in words}
    inputs = [t.name for t in model.inputs if t.name not in used] if model is not None else []
    return fragment, [f"{name}=" for name in _begin(fragment, inputs)] or _options(parser, line)


def _is_in(state: str, model: ModelRecord) -> bool:
    return (model.state == state.removeprefix("not ")) != state.startswith("not ") if state else True


def _ready_model(name: str | None, models: Sequence[ModelRecord]) -> ModelRecord | None:
    return next((m for m in models if m.name == name and m.state == "READY"), None)


def _model(parser: Parser, words: Iterable[str]) -> str | None:
    """Return the model in a `%bls` line: the first word that is neither an option, nor its value, nor an input."""
    skip = False
    for word in words:
        if skip or word.startswith("-") or input_name(word):
            skip = not skip and parser.takes_value(word)
            continue
        return word
    return None


def _awaited_option(parser: Parser, words: Sequence[str]) -> tuple[str, int]:
    """Return the option whose value is at the cursor, and the number of the value's words before the cursor."""
    for back, word in enumerate(reversed(words)):
        if parser.takes_value(word) and (not back or parser.options[word].nargs == "+"):
            return word, back
        if word.startswith("-"):
            break
    return "", 0


def _datatypes(fragment: str, before: int) -> tuple[str, list[str]]:
    """Complete TYPE in ``NAME TYPE [DIMS]``, which may be quoted."""
    words = fragment.lstrip("'\"").split(" ")
    begun = words[-1]
    if before + len(words) != 2 or (fragment[:1] in ("'", '"') and before):
        return begun, []
    sign = "TYPE_" if begun.startswith("TYPE_") else ""
    return begun, _begin(begun, (f"{sign}{name}" for name in DTYPE_OF_DATATYPE))


def _values(line: MagicLine, models: Sequence[ModelRecord], variables: Mapping[str, Any]) -> list[str]:
    """Return variables and models; without a fragment, only variables with a response or tensor."""
    public = [name for name in list(variables) if not name.startswith("_")]
    if not line.fragment:
        public = [name for name in public if _is_tensor(variables.get(name))]
    return _begin(line.fragment, [*public, *(model.name for model in models if model.state == "READY")])


def _is_tensor(value: object) -> bool:
    return isinstance(value, (bls.Response, bls.pb_utils.Tensor)) or hasattr(type(value), "__dlpack__")


def _texts(variables: Mapping[str, Any]) -> list[str]:
    """Return the variables that may contain a configuration."""
    public = (name for name in list(variables) if not name.startswith("_"))
    return [name for name in public if isinstance(variables.get(name), (str, dict))]


def _options(parser: Parser, line: MagicLine) -> list[str]:
    return _begin(line.fragment, (o for o in parser.options if o.startswith("--") and o not in line.words))


def _begin(fragment: str, candidates: Iterable[str]) -> list[str]:
    return [c for c in candidates if c.startswith(fragment)]


_QUOTES = "'\""


def paths(fragment: str, folders: bool) -> list[str]:
    """Return the paths that begin with an unfinished word, quoted if necessary.

    Folders end with a slash. Hidden files appear only after a dot.
    """
    quote = fragment[:1] if fragment[:1] in _QUOTES else ""
    closed = quote if len(fragment) > 1 and fragment.endswith(quote) else ""
    folder, slash, begun = fragment.removeprefix(quote).removesuffix(closed).rpartition("/")
    names = ["../"] if begun == ".." else []
    with suppress(OSError, RuntimeError, ValueError):  # no such folder, an unknown user in `~name`, not a path
        for entry in Path(f"{folder}{slash}" or ".").expanduser().iterdir():
            fits = entry.name.startswith(begun) and entry.name.startswith(".") == begun.startswith(".")
            if fits and (entry.is_dir() or not folders):
                names.append(f"{entry.name}{'/' if entry.is_dir() else ''}")
    return [_quoted(f"{folder}{slash}{name}", quote, closed) for name in sorted(names)]


def _quoted(path: str, quote: str, closed: str) -> str:
    if quote:
        return f"{quote}{path}{closed}"
    if not any(char.isspace() or char in "'\"()[]{}" for char in path):
        return path
    own = "'" if '"' in path else '"'
    return f"{own}{path}{own}"
