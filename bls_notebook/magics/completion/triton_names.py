"""What names in a cell stand for, of Triton's module and of ours, whether the cell has been run or not.

Known are the imports that the cell makes, ``pb_utils`` in the cell of a model, and variables that get what a
function of Triton's returns: ``response = request.exec()``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import bls_notebook as bls
from bls_notebook import pb_utils

from .place import without_magics

_IN_MODEL = ("%%tritonmodel", "%%bls")
_MODULES = {
    "triton_python_backend_utils": pb_utils,
    "c_python_backend_utils": pb_utils,
    "bls_notebook": bls,
    "bls_notebook.pb_utils": pb_utils,
}
_IMPORT = re.compile(r"\bimport\s+([\w.]+)(?:\s+as\s+(\w+))?")
_FROM = re.compile(r"\bfrom\s+([\w.]+)\s+import\s+([^\n]+)")
_CALL = r"^[^\S\n]*{}\s*=(?!=)\s*(?:await\s+)?([^\W\d][\w.]*)\("
# What is not said by the annotation of what returns it.
_RETURNED = {
    pb_utils.InferenceRequest.exec: pb_utils.InferenceResponse,
    pb_utils.InferenceRequest.async_exec: pb_utils.InferenceResponse,
}


@dataclass(frozen=True)
class Code:
    """A cell that is being written, with the place of the cursor, and the notebook's variables."""

    text: str
    cursor: int
    variables: Mapping[str, Any]

    @property
    def before(self) -> str:
        """The part before the cursor."""
        return self.text[: self.cursor]

    @property
    def in_model(self) -> bool:
        """Whether it is a model's, or the body of one."""
        return self.text.startswith(_IN_MODEL)

    @cached_property
    def _imported(self) -> dict[str, Any]:
        """What is imported from modules that are known here, by the names that it gets."""
        code = without_magics(self.text)
        found: dict[str, Any] = {}
        for module, alias in _IMPORT.findall(code):
            if module in _MODULES and (alias or "." not in module):
                found[alias or module] = _MODULES[module]
        for module, names in _FROM.findall(code):
            for name in names.strip("()").split(","):
                own, _, alias = name.strip().partition(" as ")
                if module in _MODULES and own in _MODULES[module].__all__:
                    found[alias.strip() or own] = getattr(_MODULES[module], own)
        return found

    def meaning(self, said: str) -> Any:
        """Return what a dotted name stands for; None where that is nothing of Triton's or ours.

        A call, ``name()``, stands for what it returns, and a variable for its class.
        """
        return self._meaning(said, self.before)

    def _meaning(self, said: str, before: str) -> Any:
        first, *rest = said.split(".")
        value = self._root(first.removesuffix("()"), before)
        value = _result(value) if first.endswith("()") else value
        for name in rest:
            if value is None or name.startswith("_"):
                return None
            value = getattr(value, name.removesuffix("()"), None)
            value = _result(value) if name.endswith("()") else value
        return value

    def _root(self, name: str, before: str) -> Any:
        if name in self._imported:
            return self._imported[name]
        if name in self.variables:
            known = self.variables[name]
            return known if known is pb_utils or known is bls else None
        if not self.in_model or not name.isidentifier():
            return None
        if name == "pb_utils":
            return pb_utils
        given = list(re.finditer(_CALL.format(name), before, re.MULTILINE))
        if given:
            return self._meaning(f"{given[-1][1]}()", before[: given[-1].start()])
        requests = re.search(rf"\bfor\s+{name}\s+in\s+requests\b", before)
        return pb_utils.InferenceRequest if requests else None


def names_of(value: Any) -> list[str]:
    """Return the public names of a module or class, without those that Python gives every class."""
    if isinstance(value, ModuleType):
        return list(value.__all__)
    if not isinstance(value, type):
        return [name for name in dir(value) if not name.startswith("_")]
    kinds = (kind for kind in value.__mro__ if kind.__module__.startswith("bls_notebook."))
    return list(dict.fromkeys(name for kind in kinds for name in vars(kind) if not name.startswith("_")))


def _result(value: Any) -> Any:
    if isinstance(value, type) or value is None:
        return value
    try:
        if value in _RETURNED:
            return _RETURNED[value]
    except TypeError:  # not hashable
        return None
    returns = str(getattr(value, "__annotations__", {}).get("return", "")).partition(" | ")[0]
    return getattr(pb_utils, returns, None) if returns.isidentifier() else None
