"""What may come next in a magic's line, by the models that are known now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import bls_notebook as bls
from bls_notebook.magics import blsmemory, blsprofile, body, request, tritonconfig, tritonmodel
from bls_notebook.magics.arguments import Parser
from bls_notebook.magics.repo import VERBS
from bls_notebook.magics.request_line import input_name
from bls_notebook.observe.records import ModelRecord

from .lines import MagicLine

__all__ = ["suggest"]

_CELLS = {"%%bls": body.parser, "%%blsmemory": blsmemory.parser, "%%blsprofile": blsprofile.cell_parser}
_REQUESTS = {"%bls": request.parser, "%blsprofile": blsprofile.parser}


def suggest(line: MagicLine, models: Sequence[ModelRecord]) -> tuple[str, list[str]]:
    """Return the part of the fragment to replace, and what to replace it with."""
    if line.magic in _REQUESTS:
        return _request(line, models)
    if line.magic == "%tritonrepo":
        return line.fragment, _repository(line, models)
    if line.magic in _CELLS:
        parser = _CELLS[line.magic]()
        return line.fragment, [] if _awaited_option(parser, line) else _options(parser, line)
    parser = tritonmodel.parser() if line.magic == "%%tritonmodel" else tritonconfig.parser()
    if _awaited_option(parser, line):
        return line.fragment, []
    if line.words:
        return line.fragment, _options(parser, line)
    return line.fragment, _names(models, line.fragment)


def _request(line: MagicLine, models: Sequence[ModelRecord]) -> tuple[str, list[str]]:
    parser = _REQUESTS[line.magic]()
    name, fragment = _model(parser, line.words), line.fragment
    model = next((m for m in models if m.name == name and m.state == "READY"), None)
    option = _awaited_option(parser, line)
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


def _repository(line: MagicLine, models: Sequence[ModelRecord]) -> list[str]:
    if not line.words:
        return _begin(line.fragment, VERBS)
    verb = VERBS.get(line.words[0])
    if verb is None:
        return []
    fitting = [m for m in models if verb.suggests(m) and m.name not in line.words]
    offered = _begin(line.fragment, (word for word in verb.offers() if word not in line.words))
    return _names(fitting, line.fragment) or offered or _options(verb.parser(), line)


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
