"""environment.yml (conda) and pyproject.toml (pip) require the same packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

# Packages with different names: on PyPI, on conda-forge.
CONDA_NAMES = {
    "cupy-cuda12x": "cupy", "cupy-cuda13x": "cupy", "playwright": "playwright-python",
    "prometheus-client": "prometheus_client", "torch": "pytorch",
}  # fmt: skip


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def environment() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def wanted() -> dict[str, SpecifierSet]:
    """Return the requirements of the project and its extras by their names on conda-forge."""
    extras = dict(project()["optional-dependencies"])
    for_checks = [Requirement(line) for line in extras.pop("test")]
    found: dict[str, SpecifierSet] = {}
    lines = [*project()["dependencies"], *(line for extra in extras.values() for line in extra)]
    for requirement in [*map(Requirement, lines), *for_checks]:
        if canonicalize_name(requirement.name) == "bls-notebook":  # an extra made of other extras
            continue
        name = canonicalize_name(requirement.name)
        name = CONDA_NAMES.get(name, name)
        if requirement in for_checks and name in found and requirement.specifier != found[name]:
            found[name] &= requirement.specifier  # the checks may need narrower bounds
            continue
        assert found.setdefault(name, requirement.specifier) == requirement.specifier, (
            f"pyproject.toml asks for {name} twice, with different bounds"
        )
    return found


def offered() -> dict[str, SpecifierSet]:
    """Return the packages of environment.yml, including those under `pip:`, with their bounds."""
    found: dict[str, SpecifierSet] = {}
    for entry in environment()["dependencies"]:
        for line in entry["pip"] if isinstance(entry, dict) else [entry]:
            if line == "-e .":
                continue
            requirement = Requirement(line)
            assert requirement.name not in found, f"environment.yml names {requirement.name} twice"
            found[requirement.name] = requirement.specifier
    return found


@pytest.mark.parametrize("name", sorted(wanted()))
def test_environment_has_it_with_the_same_bounds(name: str) -> None:
    assert name in offered(), f"add `{name} {wanted()[name]}` to environment.yml"
    assert offered()[name] == wanted()[name]


def test_environment_has_nothing_else() -> None:
    assert set(offered()) - set(wanted()) == {"python", "pip"}


def test_environment_python_is_a_declared_one() -> None:
    declared = SpecifierSet(project()["requires-python"])
    allowed = offered()["python"]
    versions = [f"3.{minor}" for minor in range(8, 30)]
    from_classifiers = [line.rpartition(" ")[2] for line in project()["classifiers"] if ":: Python :: 3." in line]
    assert [v for v in versions if v in allowed] == from_classifiers
    assert all(v in declared for v in from_classifiers)
    assert "3.9" not in declared


def test_conda_comes_from_conda_forge_only_and_installs_the_package_itself() -> None:
    assert environment()["channels"] == ["conda-forge", "nodefaults"]
    assert environment()["name"] == "bls_notebook"
    assert any("-e ." in entry["pip"] for entry in environment()["dependencies"] if isinstance(entry, dict))
