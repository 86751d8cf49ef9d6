"""Mark outputs that are older than a definition of their models, by style rules alone.

An output names the definitions of the models that its cell asked, and of their callees, in an attribute. The output of
a definition has rules that mark the outputs with another definition of this model, and no others. So no output is
rewritten, nothing runs in the kernel or in the browser, a model that gets an earlier definition back clears the mark,
and saved notebooks keep it. Rules apply to outputs of the same kernel alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from bls_notebook.display import Display
from bls_notebook.records.models import ModelRecord
from bls_notebook.repository.host import Host

_ATTRIBUTE = "data-bls-of"
_ROOT = 'tex2jax_ignore"'  # the end of the classes of an output
_OUTPUT = ".jp-OutputArea-child"  # of a cell in JupyterLab: only the first one with a mark shows it
_LOOK = "display:block;font-size:11px;color:var(--b-amber)"
_MOST = 100  # repetitions of a selector; browsers count up to 255


class StaleOutputs:
    """The marks of one notebook."""

    def __init__(self) -> None:
        self._kernel = uuid.uuid4().hex
        self._asked: tuple[int, set[str]] = (0, set())  # the number of a cell, and the models that its magics asked
        self._defined: dict[str, tuple[int, str]] = {}  # the number of the cell of a model, and its definition
        self._newest: dict[str, tuple[int, str]] = {}  # the number of changes of a model's definition, and its hash

    def ask(self, models: Iterable[str], cell: int) -> None:
        """Note the models that a magic of a cell asks."""
        self._asked = cell, {*models, *(self._asked[1] if self._asked[0] == cell else ())}

    def define(self, host: Host, name: str, cell: int) -> None:
        """Note the cell of a model."""
        self._defined[name] = cell, self._definition(host, name)

    def marked(self, display: Display, value: Any, host: Host, cell: int) -> Display:
        """Name the definitions in an output of a cell; add the rules to an output that shows definitions."""
        values = value if isinstance(value, list) else [value]
        shown, rules = [each.name for each in values if isinstance(each, ModelRecord)], ""
        html = display.html
        if shown:
            rules = "".join(self._rules(name, of) for name in shown if (of := self._definition(host, name)))
        elif self._asked[0] == cell:
            names = sorted({*host.reached(self._asked[1]), *filter(host.find, self._asked[1])})
            stamp = f'{_ATTRIBUTE}="{" ".join(self._definition(host, name) for name in names)}"'
            words = " ".join(f'var({self._mark(name)},"")' for name in names)
            again = f"{_OUTPUT}:has([{stamp}])~{_OUTPUT} .bls-out[{stamp}]::before{{content:none}}"
            rules = f".bls-out[{stamp}]::before{{content:{words};{_LOOK}}}{again}" if names else ""
            html = html.replace(_ROOT, f"{_ROOT} {stamp}", 1)
        return replace(display, html=html.replace("</style>", f"{rules}</style>", 1))

    def _mark(self, name: str) -> str:
        """Return the style property with the words of a model's mark: an output shows those of all its models."""
        return f"--b-{self._hash(name)}"

    def _hash(self, *texts: str) -> str:
        return sha256("\0".join((self._kernel, *texts)).encode("utf-8", "surrogatepass")).hexdigest()[:10]

    def _definition(self, host: Host, name: str) -> str:
        """Return two hashes: of a model's name, and of its code and configuration; empty if it is not in service."""
        model = host.find(name)
        return "" if model is None else f"{self._hash(name)}-{self._hash(model.seen.code, model.seen.config)}"

    def _rules(self, name: str, definition: str) -> str:
        number, newest = self._newest.get(name, (0, ""))
        number += newest != definition
        self._newest[name] = number, definition
        cell, of = self._defined.get(name, (0, ""))
        words = f"older than {name}" + (f", cell {cell}" if of == definition else "")
        # As code points: a name may have quotes or markup.
        text = "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in words)
        # A newer definition wins by specificity, because outputs and their cells may have different orders.
        several, one = divmod(number, _MOST)
        outputs = f'.bls-out[{_ATTRIBUTE}*="{definition[:11]}"]' + ":not(#b)" * several + f"[{_ATTRIBUTE}]" * one
        same = f'[{_ATTRIBUTE}~="{definition}"]'
        mark = self._mark(name)
        return f'{outputs}:not({same}){{{mark}:"{text}\\a0 \\a0 "}}{outputs}{same}{{{mark}:initial}}'
