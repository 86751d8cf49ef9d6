"""Triton's names in the cell of a model, completed by jedi, as in any other code.

Jedi knows `triton_python_backend_utils` by its stubs package, and IPython asks it by itself. What jedi cannot
see in a cell of a magic is said here: that `pb_utils` is there, and what `execute` receives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jedi

_IN_MODEL = ("%%tritonmodel", "%%bls")
_GIVEN = "import triton_python_backend_utils as pb_utils\n"
_EXECUTE = re.compile(r"(\bdef\s+execute\(\s*self\s*,\s*\w+)(?=\s*[,)])")
_TYPED = r"\1: 'list[pb_utils.InferenceRequest]'"
_MODULES = ("triton_python_backend_utils", "bls_notebook.pb_utils")


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

    def names(self) -> list[str]:
        """Return the public names of Triton's that may stand at the cursor."""
        found = self._asked("complete")
        return list(dict.fromkeys(each.name for each in found if not each.name.startswith("_")))

    def help(self) -> str:
        """Return signature and docstring of Triton's name at the cursor, or of what is called there."""
        for question in ("infer", "get_signatures"):
            for found in self._asked(question):
                return str(found.docstring())
        return ""

    def _asked(self, question: str) -> list[Any]:
        """Jedi's answers about the cursor that are of Triton's module."""
        if not self.in_model or "\n" not in self.before:
            return []
        text, before = (_GIVEN + _EXECUTE.sub(_TYPED, part.partition("\n")[2]) for part in (self.text, self.before))
        lines = before.split("\n")
        answers = getattr(jedi.Script(text), question)(len(lines), len(lines[-1]))
        return [each for each in answers if str(each.module_name).startswith(_MODULES)]
