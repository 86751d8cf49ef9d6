"""The pages of the reference that are made from the code: parsers, settings, docstrings, tables of the package."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomllib
from magics_page import plain, table

import bls_notebook
import pytest_bls_notebook
from bls_notebook.capabilities import registry
from bls_notebook.checking.records import rules
from bls_notebook.checking.releases import changes, newest, versions
from bls_notebook.magics.settings import BLSNotebook
from bls_notebook.records.record_file import RecordFile
from bls_notebook.records.remedy_words import on_surface, remedy

ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = ROOT / "bls_notebook"
_VARIABLES = {
    "BLS_NOTEBOOK_": (
        "Prefix of headers that a worker of a data set sends to a remote server; an error names the whole variable."
    ),
    "BLS_NOTEBOOK_SIMULATED_GPUS": "Number of simulated GPUs, as `BLSNotebook.simulated_gpus`.",
    "BLS_NOTEBOOK_SIMULATED_GPU_MEMORY": "Capacity of each simulated GPU, as `BLSNotebook.simulated_gpu_memory`.",
    "BLS_NOTEBOOK_TRITON_ENV": "Folder into which `serve` and `prove` install NVIDIA's tritonserver.",
    "BLS_TRITON": "If it is set, `TritonTestCase` sends its requests to a real tritonserver.",
    "BLS_UPDATE_SNAPSHOTS": "If it is set, `assert_same_answers` writes its snapshots again.",
}
_ELSEWHERE = ("RepositoryUnderTest",)  # on the page of the pytest plugin


def pages() -> dict[str, str]:
    """Return the text of each generated page, by its name."""
    return {
        "python_api": python_api(),
        "pb_utils": pb_utils(),
        "settings": settings(),
        "pytest_plugin": pytest_plugin(),
        "divergences": divergences(),
        "file_formats": file_formats(),
        "model_configuration": model_configuration(),
        "releases": releases(),
        "error_messages": error_messages(),
    }


def page(title: str, *parts: str) -> str:
    """Return a page of its title and its parts."""
    return "\n".join([f"# {title}\n", *(f"{part.strip()}\n" for part in parts if part.strip())])


def python_api() -> str:
    """Return the page of all public names, by capability, from their docstrings."""
    parts = ["`import bls_notebook as bls`. The magics call these functions. Those with `repo=` use the current"
             " repository by default."]  # fmt: skip
    for capability in registry().installed():
        names = [f"bls_notebook.{name}" for name in capability.names]
        names += [
            f"bls_notebook.{capability.name}.{name}"
            for name in capability.types
            if name not in (*capability.names, *_ELSEWHERE)
        ]
        if names:
            title = "Models and requests" if capability.name == "core" else capability.name.capitalize()
            parts += [f"## {title}", _directives(names)]
    return page("Python API", *parts)


def _directives(names: list[str]) -> str:
    """Return autodoc's directives for names, after a table of them."""
    lines = [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    for name in names:
        value = _value(name)
        kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
        if inspect.isclass(value) and issubclass(value, BaseException):
            kind = "exception"
        lines.append(f".. auto{kind}:: {name}")
        if kind == "class":
            foreign = [base.__name__ for base in value.__mro__ if base.__module__.partition(".")[0] != "bls_notebook"]
            foreign.append("int")  # of enumerations inside a class
            lines += ["   :members:", f"   :inherited-members: {', '.join(foreign)}"]
        lines.append("")
    return "```{eval-rst}\n" + "\n".join(lines) + "```"


def _value(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(__import__(module, fromlist=[attribute]), attribute)


def pb_utils() -> str:
    """Return the page of the module that models import."""
    module = bls_notebook.pb_utils
    public = [name for name in dir(module) if name[0] != "_" and not inspect.ismodule(getattr(module, name))]
    names = [f"bls_notebook.pb_utils.{name}" for name in public if getattr(module, name).__doc__]
    constants = [name for name in public if name.isupper()]
    return page(
        "triton_python_backend_utils",
        "Models import it as `pb_utils`. In a notebook it is `bls_notebook.pb_utils`. Its names are Triton's.",
        _directives([name for name in names if not name.rpartition(".")[2].isupper()]),
        "## Constants",
        table(("constant", "value"), ((f"`{name}`", f"`{getattr(module, name)!r}`") for name in constants)),
    )


def settings() -> str:
    """Return the page of the settings and of the environment variables, which the code has to read."""
    traits = BLSNotebook.class_traits(config=True)
    rows = [(f"`{name}`", f"`{trait.default_value!r}`", plain(trait.help)) for name, trait in traits.items()]
    code = "".join(path.read_text("utf-8") for path in _PACKAGE.rglob("*.py"))
    found = set(re.findall(r'"(BLS_[A-Z_]+)"', code + inspect.getsource(pytest_bls_notebook)))
    if found != set(_VARIABLES):
        raise LookupError(f"environment variables without a description, or only with one: {found ^ set(_VARIABLES)}")
    return page(
        "Settings",
        "`%config BLSNotebook.strict = True` sets one in a notebook, `%config BLSNotebook` lists all. In a profile:"
        " `c.BLSNotebook.strict = True`.",
        table(("setting", "default", "meaning"), rows),
        "## Environment variables",
        table(("variable", "meaning"), ((f"`{name}`", text) for name, text in _VARIABLES.items())),
    )


class _Registered:
    """Collects the options, settings and markers that the plugin registers."""

    def __init__(self) -> None:
        self.options: list[tuple[str, str]] = []
        self.settings: list[tuple[str, str]] = []
        self.markers: list[tuple[str, str]] = []
        self.stash: dict[Any, Any] = {}

    def getgroup(self, *_: str) -> _Registered:
        return self

    def addoption(self, name: str, **keywords: Any) -> None:
        self.options.append((f"`{name}`", plain(keywords["help"])))

    def addini(self, name: str, help: str, *_: Any) -> None:
        self.settings.append((f"`{name}`", plain(help)))

    def addinivalue_line(self, _: str, line: str) -> None:
        name, _, text = line.partition(": ")
        self.markers.append((f"`{name}`", plain(text)))

    def getoption(self, _: str) -> bool:
        return False


def pytest_plugin() -> str:
    """Return the page of the pytest plugin: options, settings, the marker, the fixture."""
    plugin, registered = pytest_bls_notebook, _Registered()
    plugin.pytest_addoption(registered)  # type: ignore[arg-type]
    plugin._add_server(registered, "--triton")  # type: ignore[arg-type]
    plugin.pytest_configure(registered)  # type: ignore[arg-type]
    return page(
        "pytest plugin",
        "[Testing models](../../guides/testing.md) shows how to use it. `pytest -p no:bls_notebook` disables it.",
        table(("option", "meaning"), registered.options),
        table(("setting in `pytest.ini` or `pyproject.toml`", "meaning"), registered.settings),
        table(("marker", "meaning"), registered.markers),
        "## Fixture `triton_repository`",
        "The fixture is a `RepositoryUnderTest`: a repository with these methods and those of `ModelRepository`.",
        _directives(["bls_notebook.testing.RepositoryUnderTest"]),
    )


def divergences() -> str:
    """Return the page of the answers that differ from a recorded or live server's."""
    folder = ROOT / "tests" / "conformance"
    releases = tomllib.loads((folder / "release_differences.toml").read_text("utf-8"))
    known = changes()
    by_release = {
        test: f"{known[rule].name}: changed in {known[rule].until or known[rule].since}"
        for test, rule in (releases.pop("live") | releases).items()
        if rule in known
    }
    reasons = tomllib.loads((folder / "live_divergences.toml").read_text("utf-8"))
    parts = [
        "## By the release of the server",
        "The answers are those of the newest server. These differ from the answers of tritonserver 24.10.",
        table(("test", "what changed"), ((f"`{test}`", plain(why)) for test, why in by_release.items())),
        "## On purpose",
        table(("test", "difference"), ((f"`{test}`", plain(why)) for test, why in reasons.items())),
    ]
    return page(
        "Answers that differ on purpose",
        "The tests compare answers with those of a real tritonserver ([conformance](../../evidence/conformance.md))."
        " They expect these differences and no others. [Differences from Triton](../differences.md) lists what follows"
        " from the design.",
        *parts,
    )


def file_formats() -> str:
    """Return the page of the files that `bls.open_file` reads."""
    parts = ["`bls.open_file(path)` recognizes a file's kind by its content. `.save(path)` of the object writes one,"
             " compressed if the name ends with `.gz`."]  # fmt: skip
    for kind in registry().keys("loaders"):
        loader = registry().load("loaders", kind)
        parts += [f"## {kind}", plain((loader.__doc__ or "").strip().split("\n\n")[0])]
        files = [value for value in vars(inspect.getmodule(loader)).values() if isinstance(value, RecordFile)]
        for file in files:
            fields = ((f"`{field.name}`", f"`{field.type}`") for field in dataclasses.fields(file.record))
            parts.append(f"A JSON object with `kind` `{file.kind}`, `schema` {file.schema}, and these fields. A field"
                         " with its default value is left out.")  # fmt: skip
            parts.append(table(("field", "type"), fields))
    return page("File formats", *parts)


def model_configuration() -> str:
    """Return the page of the fields of config.pbtxt."""
    content = json.loads((_PACKAGE / "repository" / "config" / "fields.json").read_text("utf-8"))
    parts = [
        "Triton's own protobuf reads `config.pbtxt`. A field is *honored*: it has Triton's effect; *rejected*: a model"
        " with it is not loaded; or it has no effect, and a warning says why. A reason may depend on the backend. Some"
        " fields have their effect only with an option of the repository, as on a server."
    ]
    for title, fields in content.items():
        rows = [(f"`{name.removeprefix('inference.')}`", _effect(effect)) for name, effect in fields.items()]
        parts += [f"## {title.capitalize()}", table(("field", "effect"), rows)]
    return page("Model configuration", *parts)


def releases() -> str:
    """Return the page of what changed for models from release to release."""
    rows = []
    for rule, change in changes().items():
        from_to = (f"since {change.since}" * bool(change.since), f"before {change.until}" * bool(change.until))
        rows.append(
            (plain(change.name), ", ".join(filter(None, from_to)), plain(rules()[rule][2]), plain(change.source))
        )
    return page(
        "Releases of Triton",
        f"`%tritonrepo check --for RELEASE` finds models that a release between {min(versions())} and {newest()} cannot"
        " run, or answers differently, and known bugs that they would meet. Sources are pull requests of Triton's"
        " repositories.",
        table(("used by a model", "releases with a problem", "problem", "source"), rows),
    )


def _effect(effect: str | Mapping[str, Mapping[str, Any]]) -> str:
    if isinstance(effect, str):
        return effect
    return " ".join(
        f"{'All backends' if backend == '*' and len(effect) == 1 else 'Others' if backend == '*' else backend}: "
        + plain(facts["why"])
        for backend, facts in effect.items()
    )


def error_messages() -> str:
    """Return the page of the errors with a remedy."""
    remedies = json.loads((_PACKAGE / "records" / "remedies.json").read_text("utf-8"))
    return page(
        "Error messages and remedies",
        "An error is shown with Triton's own message. If the message matches a pattern of this page, a line below it"
        " names the remedy. More remedies depend on the request and the models: similar names, shapes, dtypes.",
        *(
            part
            for title, kind in (("Requests", "request"), ("Code of models", "code"))
            for part in (f"## {title}", table(("message (regular expression)", "remedy"), _remedies(remedies[kind])))
        ),
    )


def _remedies(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for pattern, template in texts.items():
        shown = re.sub(r"\(\?P<\w+>([^)]*)\)", "…", pattern)
        facts = {name: name.upper() for name in re.compile(pattern).groupindex}
        with on_surface("notebook"):
            yield f"`` {shown} ``", plain(str(remedy(template, **facts)))
