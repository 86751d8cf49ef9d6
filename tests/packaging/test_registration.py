"""Everything that capabilities register can be imported, and the generated files list it."""

from __future__ import annotations

import pytest

import bls_notebook as bls
from bls_notebook.capabilities import registry
from bls_notebook.lazy_names import load
from bls_notebook.magics.magic import Magic, Verb
from tests.packaging import generated


def test_generated_files_are_those_of_the_registration() -> None:
    outdated = [path.name for path, text in generated.files().items() if path.read_text("utf-8") != text]
    assert not outdated, f"run python tests/packaging/generated.py: {outdated}"


def test_the_package_has_few_public_names() -> None:
    assert len(set(bls.__all__)) == len(bls.__all__) <= 37


@pytest.mark.parametrize(
    "kind", ["names", "types", "magics", "verbs", "commands", "completions", "loaders", "backends", "hooks"]
)
def test_every_target_exists(kind: str) -> None:
    found = {key: registry().load(kind, key) for key in registry().keys(kind)}
    assert found
    if kind == "magics":
        assert all(isinstance(each, Magic) and each.parser.prog == name for name, each in found.items())
    if kind == "verbs":
        assert all(isinstance(each, Verb) and each.name == name for name, each in found.items())


def test_every_drawing_exists() -> None:
    for cls, (capability, drawing) in registry().drawings().items():
        assert isinstance(load(cls), type)
        for target in (drawing.document, drawing.many, drawing.widget, drawing.display):
            assert not target or callable(load(capability.absolute(target)))


def test_a_key_has_one_owner() -> None:
    for kind in ("names", "magics", "verbs", "commands", "loaders", "backends", "displays"):
        keys = [key for capability in registry().installed() for key in getattr(capability, kind)]
        assert len(keys) == len(set(keys))
