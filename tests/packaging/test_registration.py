"""Everything that capabilities register can be imported, and the generated files list it."""

from __future__ import annotations

from argparse import ArgumentParser
from inspect import signature

import pytest

import bls_notebook as bls
from bls_notebook.capabilities import registry
from bls_notebook.lazy_names import load
from bls_notebook.operations import OperationSpec
from tests.packaging import generated


def test_generated_files_are_those_of_the_registration() -> None:
    outdated = [path.name for path, text in generated.files().items() if path.read_text("utf-8") != text]
    assert not outdated, f"run python tests/packaging/generated.py: {outdated}"


def test_the_package_has_few_public_names() -> None:
    assert len(set(bls.__all__)) == len(bls.__all__) <= 40


@pytest.mark.parametrize(
    "kind", ["names", "types", "magics", "verbs", "commands", "completions", "loaders", "backends", "hooks"]
)
def test_every_target_exists(kind: str) -> None:
    found = {key: registry().load(kind, key) for key in registry().keys(kind)}
    assert found
    if kind in ("magics", "verbs", "commands"):
        assert all(isinstance(each, OperationSpec) for each in found.values())


def test_an_operation_takes_the_options_that_it_declares() -> None:
    for kind, surface in (("magics", "notebook"), ("verbs", "notebook"), ("commands", "shell")):
        for name in registry().keys(kind):
            operation: OperationSpec = registry().load(kind, name)
            special = operation.notebook if surface == "notebook" else operation.shell
            function = operation.function if special is None else special
            if not function:
                continue  # %tritonrepo
            called = getattr(bls, function) if isinstance(function, str) else function
            parser = ArgumentParser()
            operation.add_options(parser, surface)
            options = {action.dest for action in parser._actions} - {"help", "json", "sequence"}
            if not name.startswith("%%"):
                options -= {"save", "quiet"}
            if operation.form == "inputs" and surface == "notebook":
                options |= {"inputs"}
            given = ("call",) if special is not None and surface == "notebook" else ()
            signature(called).bind(*given, **dict.fromkeys(options))


def test_every_drawing_exists() -> None:
    for cls, (capability, drawing) in registry().drawings().items():
        assert isinstance(load(cls), type)
        for target in (drawing.document, drawing.many, drawing.widget, drawing.display):
            assert not target or callable(load(capability.absolute(target)))


def test_a_key_has_one_owner() -> None:
    for kind in ("names", "magics", "verbs", "commands", "loaders", "backends", "displays"):
        keys = [key for capability in registry().installed() for key in getattr(capability, kind)]
        assert len(keys) == len(set(keys))
