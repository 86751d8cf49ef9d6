"""Remedies: sentences with actions, in words for each surface: a notebook, a script or a shell.

A remedy has the words of all surfaces until it is shown: a magic cannot reach a script or a shell, and a saved record
suits the surface on which it is shown later. Texts of models and users are quoted in code and never parsed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from string import Formatter

from .base import Record

surfaces: list[str] = []
"""Where texts are shown, the latest last: ``notebook`` while the extension is loaded, ``shell`` during a command."""

_STARTS = "`correlation_id=1, flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START`"
# The words of actions in Python, in a notebook and in a shell; Python's replace missing ones. A fact ``{name}`` is
# quoted for magics and shells, and ``{name!r}`` is a literal of Python.
ACTIONS: dict[str, Sequence[str]] = {
    "check": ("`python -m bls_notebook check {folder}`",),
    "declare": (
        "`config={{'input': [{{'name': {name!r}, 'data_type': 'TYPE_FP32', 'dims': [-1]}}]}}` in `repo.define`",
        "`--input {name} FP32 [-1]` after %%tritonmodel, in a %%tritonconfig cell",
    ),
    "decoupled": ("`model_transaction_policy {{ decoupled: true }}`", "`--decoupled` after %%tritonmodel"),
    "define": ("`repo.define({name!r}, source)`", "`%%tritonmodel {name}`", "`{name}/1/model.py`"),
    "environment": ("`repo.environment('PACKAGE')`", "`%%tritonmodel NAME --requirements PACKAGES`"),
    "in_kernel": ("`repo.load({name!r}, isolation='kernel')`", "`%tritonrepo load {name} --in-kernel`"),
    "load": ("`repo.load({name!r})`", "`%tritonrepo load {name}`", "try again"),
    "reload": ("`repo.reload({name!r})`", "`%tritonrepo reload {name}`", "try again"),
    "run": ("`repo.infer(...)` or `repo.run(function)`", "%bls or a %%bls cell"),
    "sequence": (_STARTS, f"`%bls {{model}} ... --sequence 1:start`, or {_STARTS}"),
    "simulate": ("`bls.simulate_gpus(1)`", "`%config BLSNotebook.simulated_gpus = 1`"),
    "stream": ("`repo.stream({model!r}, inputs)`", "`%bls {model} ... --stream`"),
    "try": ("`bls.try_repository({folder!r})`", "`%tritonrepo try {folder}`", "`python -m bls_notebook try {folder}`"),
    "use": ("`repo = bls.ModelRepository({folder!r})`", "`%tritonrepo use {folder}`"),
}


@contextmanager
def on_surface(surface: str) -> Iterator[None]:
    """Show texts on a surface while inside ``with``."""
    surfaces.append(surface)
    try:
        yield
    finally:
        surfaces.remove(surface)


class _Fact(str):
    """A fact as a word of an action."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return shlex.quote(self)


@dataclass(frozen=True, slots=True, repr=False)
class Remedy(Record):
    """An action of the user, in Python's, a notebook's and a shell's words; Python's replace empty ones."""

    python: str
    notebook: str = ""
    shell: str = ""

    def on(self, surface: str) -> str:
        """Return the words for ``python``, ``notebook`` or ``shell``."""
        return str(getattr(self, surface) or self.python)

    def __str__(self) -> str:
        return self.on(surfaces[-1] if surfaces else "python")


def remedy(template: str, actions: Mapping[str, Sequence[str]] = ACTIONS, /, **facts: object) -> str | Remedy:
    """Fill a sentence: ``{name}`` is a fact, which may be a remedy, or else an action with words of the same facts.

    A sentence that is the same on every surface is text.
    """
    quoted = {name: _Fact(fact) for name, fact in facts.items()}
    fields = {name: fact if isinstance(fact, Remedy) else Remedy(str(fact)) for name, fact in facts.items()}
    for _, name, _, _ in Formatter().parse(template):
        if name and name not in fields:
            fields[name] = Remedy(*(form.format(**quoted) for form in actions[name]))
    surfaces = "python", "notebook", "shell"
    words = [template.format(**{name: field.on(surface) for name, field in fields.items()}) for surface in surfaces]
    return Remedy(*words) if len(set(words)) > 1 else words[0]
