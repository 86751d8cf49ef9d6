"""Every public name has a docstring."""

from __future__ import annotations

import inspect

import pytest

import bls_notebook
from bls_notebook import pb_utils


def members(cls: type) -> list[str]:
    return [
        f"{cls.__name__}.{name}"
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property | classmethod | staticmethod))
        and not inspect.getdoc(getattr(cls, name))
    ]


@pytest.mark.parametrize("module", [bls_notebook, pb_utils], ids=lambda module: module.__name__)
def test_public_names_have_docstrings(module: object) -> None:
    undocumented = []
    for name in module.__all__:  # type: ignore[attr-defined]
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if not inspect.getdoc(value):
            undocumented.append(name)
        if inspect.isclass(value):
            undocumented += members(value)
    assert not undocumented, f"in {module}: {undocumented}"
