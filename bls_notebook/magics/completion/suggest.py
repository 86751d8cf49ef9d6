"""What may come next in a magic's line, by the models that are known now: one of IPython's matchers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from IPython.core import completer

import bls_notebook as bls
from bls_notebook.magics.parsing.arguments import Parser
from bls_notebook.magics.parsing.request_line import input_name
from bls_notebook.magics.parsing.words import UnfinishedError, split_words
from bls_notebook.magics.repo.router import VERBS
from bls_notebook.magics.repo.verb import Verb
from bls_notebook.magics.table import MAGICS

from .paths import paths

if TYPE_CHECKING:
    from bls_notebook.observe.records.repository import ModelRecord

__all__ = ["MagicLine", "magic_line", "magic_matcher", "suggest"]

_PARSERS = {magic.parser.prog: magic.parser for magic in MAGICS}
_NAMES = {kind: "|".join(m.name for m in MAGICS if m.kind == kind) for kind in ("line", "cell")}
_LINE = re.compile(rf"^\s*(?:[\w.\[\]'\", ]+=\s*)?(?P<magic>%(?:{_NAMES['line']}))\s(?P<rest>.*)$")
_CELL = re.compile(rf"^(?P<magic>%%(?:{_NAMES['cell']}))\s(?P<rest>.*)$")


@dataclass(frozen=True)
class MagicLine:
    """A magic's line up to the cursor: whole words, and the one that the cursor is at the end of.

    ``magic`` has its signs, such as ``%bls``; ``opened`` says whether the last word, the ``fragment``, has
    begun with a quote that is not closed: it is Python, or a path.
    """

    magic: str
    words: tuple[str, ...]
    fragment: str
    opened: bool = False


def magic_line(text: str, first_line: bool) -> MagicLine | None:
    """Return the magic of a line that ends at the cursor; None where it is not one of ours.

    Inside an open bracket, or a quote that opens within a word, there is none either: that is Python.
    """
    found = _LINE.match(text) or (_CELL.match(text) if first_line else None)
    if found is None:
        return None
    rest, opened = found["rest"], ""
    try:
        split = split_words(rest)
    except UnfinishedError as error:
        rest, opened = rest[: error.start], rest[error.start :]
        if opened[0] not in "'\"":
            return None
        split = split_words(rest)
    words = [word.text for word in split]
    if opened:
        return MagicLine(found["magic"], tuple(words), opened, True)
    fragment = words.pop() if words and not text[-1].isspace() else ""
    return MagicLine(found["magic"], tuple(words), fragment)


# Before all other matchers, so that what it finds hides files and Python names.
@completer.completion_matcher(identifier="bls_notebook", priority=1000.0, api_version=2)  # type: ignore[untyped-decorator]
def magic_matcher(context: completer.CompletionContext) -> completer.SimpleMatcherResult:
    """Return what may stand at the cursor; where that is nothing, Python's names come as usual."""
    line = magic_line(context.text_until_cursor, context.cursor_line == 0)
    if line is None:
        return {"completions": [], "suppress": False}
    fragment, found = suggest(line, bls.current_repository().index())
    return {
        "completions": [completer.SimpleCompletion(text=text, type="param") for text in found],
        "matched_fragment": fragment,
        "suppress": True,
    }


def suggest(line: MagicLine, models: Sequence[ModelRecord]) -> tuple[str, list[str]]:
    """Return the part of the fragment to replace, and what to replace it with."""
    verb = VERBS.get(line.words[0]) if line.magic == "%tritonrepo" and line.words else None
    if line.magic == "%tritonrepo" and verb is None:
        return line.fragment, [] if line.words else _begin(line.fragment, VERBS)
    parser = verb.parser if verb is not None else _PARSERS[line.magic]
    option = _awaited_option(parser, line)
    expected = parser.expects(option)
    if expected in ("FILE", "FOLDER") and not line.fragment.startswith("-"):
        return line.fragment, paths(line.fragment, folders=expected == "FOLDER")
    if line.opened:
        return line.fragment, []
    if verb is not None:
        return line.fragment, _repository(verb, line, models)
    if line.magic in ("%bls", "%blsprofile"):
        return _request(parser, option, line, models)
    if option:
        return line.fragment, []
    if expected == "NAME" and not line.words:
        return line.fragment, _names(models, line.fragment)
    return line.fragment, _options(parser, line)


def _request(
    parser: Parser, option: str, line: MagicLine, models: Sequence[ModelRecord]
) -> tuple[str, list[str]]:
    name, fragment = _model(parser, line.words), line.fragment
    model = next((m for m in models if m.name == name and m.state == "READY"), None)
    if option == "--device":
        return fragment, _begin(fragment, dict.fromkeys([*(d.name for d in bls.list_devices()), "gpu:0"]))
    if option == "--outputs" and model is not None:
        begun = fragment.rpartition(",")[2]
        return begun, _begin(begun, (tensor.name for tensor in model.outputs))
    if option or input_name(fragment):
        return fragment, []
    if name is None:
        ready = [m for m in models if m.state == "READY"]
        return fragment, _names(ready, fragment) or _options(parser, line)
    used = {input_name(word) for word in line.words}
    inputs = [t.name for t in model.inputs if t.name not in used] if model is not None else []
    return fragment, [f"{name}=" for name in _begin(fragment, inputs)] or _options(parser, line)


def _repository(verb: Verb, line: MagicLine, models: Sequence[ModelRecord]) -> list[str]:
    fitting = [m for m in models if verb.suggests(m) and m.name not in line.words]
    offered = _begin(line.fragment, (word for word in verb.offers() if word not in line.words))
    return _names(fitting, line.fragment) or offered or _options(verb.parser, line)


def _model(parser: Parser, words: Iterable[str]) -> str | None:
    """The model of a `%bls` line: its first word that is no option, no option's value, no input."""
    skip = False
    for word in words:
        if skip or word.startswith("-") or input_name(word):
            skip = not skip and parser.takes_value(word)
            continue
        return word
    return None


def _awaited_option(parser: Parser, line: MagicLine) -> str:
    last = line.words[-1] if line.words else ""
    return last if parser.takes_value(last) else ""


def _options(parser: Parser, line: MagicLine) -> list[str]:
    """Options that are not given yet; they come with a dash, or where there is nothing else to offer."""
    known = (o for o in parser.options if o.startswith("--") and o not in line.words)
    return _begin(line.fragment, known)


def _names(models: Iterable[ModelRecord], fragment: str) -> list[str]:
    return _begin(fragment, dict.fromkeys(model.name for model in models))


def _begin(fragment: str, candidates: Iterable[str]) -> list[str]:
    return [c for c in candidates if c.startswith(fragment)]
