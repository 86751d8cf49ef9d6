"""The models that the course's notebooks and the guides define, each definition under a name of its own in one folder.

    python -m tests.conformance.documents FOLDER

runs the cells, except those that start servers or measure, and writes the models, and `definitions.pickle` with the
requests that the cells sent to them. The samples are the documents' callees under their own names.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.protobuf import text_format

import bls_notebook as bls
from bls_notebook.repository.call_order import load_with_callees
from bls_notebook.repository.config.protobuf_message import new_config
from bls_notebook.repository.requests.sender import Sender
from bls_notebook.shipping.proof.prover import Prover, proving
from bls_notebook.shipping.records import Certificate
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from tests.conformance.conftest import ROOT

SAMPLES = "model_repository"
FOUND = "definitions.pickle"
PAGES = sorted((*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("docs/guides/*.md")))
DEFINES = re.compile(r"^```python\n%%tritonmodel |^\s*\"%%tritonmodel |%tritonrepo try templates", re.M)
DOCUMENTS = {path.stem: path for path in PAGES if DEFINES.search(path.read_text("utf-8"))}
CLOSE = 1e-5
BACKENDS = ("onnxruntime", "pytorch")  # which the wheel's server lacks
MOST_ASKED = 3  # at most so many of a document's own requests to a model
# Cells and lines that are left out: each puzzle and case has a test of its own, and the rest would measure or serve.
ELSEWHERE = re.compile(r"\s*%%(blspuzzle|blscase|capture)\b")
MEASURES = re.compile(
    r"\A\s*%%bls(?!\s).*\n|^.*%(tritonrepo (serve|prove|export|endpoint)|bls(case|tune|drill|replay)|debug)\b.*$", re.M
)
FOREVER = re.compile("would (wait|keep the caller waiting) forever")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


class Strict(ServerEnvironment):
    """A server that does not complete configurations, which takes one more process for each model."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [*super().command(arguments), "--disable-auto-complete-config"]


@dataclass(eq=False)
class Definition:
    """A definition of a model in a document: `name` is that of its copy, `why_not` why a server cannot run it."""

    model: str
    document: str
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    name: str = ""
    why_not: str = ""


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Change the working directory inside the block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def cells_of(document: Path) -> list[str]:
    """Return the cells of a notebook, or the blocks of Python of a page."""
    if document.suffix == ".md":
        return ["%load_ext bls_notebook\n%tritonrepo use", *BLOCK.findall(document.read_text("utf-8"))]
    import nbformat

    return [cell.source for cell in nbformat.read(document, as_version=4).cells if cell.cell_type == "code"]


class Collection:
    """Copies of the models that documents define; `folder` has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.definitions: list[Definition] = []
        self.names: dict[Any, str] = {}  # of the copies, by model, files and callees
        self.here: dict[Any, Definition] = {}  # those of the document that runs, by model, code and configuration
        self.current: dict[str, Definition] = {}
        self.scratch = folder.parent / "scratch"

    def run(self, document: Path) -> None:
        """Run the cells of a document, and collect what they define."""
        from IPython.core.interactiveshell import InteractiveShell

        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance()
        self.here.clear()
        self.current.clear()
        quiet = StringIO()
        with in_folder(document.parent), redirect_stdout(quiet), redirect_stderr(quiet), self.following():
            for cell in cells_of(document):
                if not ELSEWHERE.match(cell):
                    shell.run_cell(MEASURES.sub("", cell), store_history=True)
                    self.look(bls.current_repository(), document.stem)
            bls.current_repository().close()
            bls.set_current_repository(None)
        self.definitions += self.here.values()

    def look(self, repository: bls.ModelRepository, document: str) -> None:
        """Copy the models that the last cell defined or changed, or whose callees it changed."""
        folders = {name: repository._service.sources[name].folder for name in repository._server.names()}
        own = {name: folder for name, folder in folders.items() if SAMPLES not in folder.parts}
        found = {}
        for name, folder in own.items():
            code = "".join(f.read_text("utf-8", "replace") for f in sorted(folder.rglob("*.py")))
            config = repository.config(name)
            config.ClearField("instance_group")
            found[name] = self.here.setdefault((name, code, str(config)), Definition(name, document))
        if found != self.current:
            self.current = found
            for name, definition in found.items():
                try:
                    exported = bls.export(self.scratch, name, completed=True, repo=repository)
                    calls = {model.name: model.calls for model in exported.models if model.name in own}
                    definition.name, definition.why_not = self.copied(document, name, calls), ""
                except bls.BLSError as error:
                    definition.why_not = str(error).splitlines()[-1].strip()

    def copied(self, document: str, name: str, calls: Mapping[str, Sequence[str]]) -> str:
        """Return the name of the copy of an exported model; copy it and its callees if there is none."""
        reached, todo = set(), [name]
        while todo:
            if (model := todo.pop()) in calls and model not in reached:
                reached.add(model)
                todo += calls[model]
        files = {model: _files(self.scratch / model) for model in sorted(reached)}
        key = name, *((model, *each.items()) for model, each in files.items())
        if key not in self.names:
            self.names[key] = new = f"{document}_{name}_{len(self.names)}"
            renamed = {name: new} | {model: self.copied(document, model, calls) for model in reached - {name}}
            for path, content in files[name].items():
                (self.folder / new / path).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / new / path).write_bytes(_renamed(path, content, renamed))
            (self.folder / new / "1").mkdir(parents=True, exist_ok=True)
        return self.names[key]

    def following(self) -> Any:
        """Record the requests to the current definitions."""
        whole = Sender.request

        def noting(sender: Sender, name: str, inputs: Mapping[str, Any], *more: Any, **options: Any) -> Any:
            if name in self.current and len(self.current[name].asked) < MOST_ASKED:
                on_cpu = {key: value.get() if hasattr(value, "get") else value for key, value in inputs.items()}
                self.current[name].asked.append(on_cpu)  # CuPy's arrays have a `get`
            return whole(sender, name, inputs, *more, **options)

        return patch.object(Sender, "request", noting)


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _renamed(path: str, content: bytes, renamed: Mapping[str, str]) -> bytes:
    """Return a file of a model with other names of models, and one instance on the CPU."""
    if path == "config.pbtxt":
        config = text_format.Parse(content, new_config())
        config.name = renamed.get(config.name, config.name)
        for step in config.ensemble_scheduling.step:
            step.model_name = renamed.get(step.model_name, step.model_name)
        config.ClearField("instance_group")
        if config.platform != "ensemble":
            config.instance_group.add(count=1, kind=2)  # KIND_CPU
        return text_format.MessageToString(config).encode()
    if not path.endswith(".py"):
        return content
    pattern = re.compile(rf"(['\"])({'|'.join(map(re.escape, renamed))})\1")
    return pattern.sub(lambda found: f"{found[1]}{renamed[found[2]]}{found[1]}", content.decode()).encode()


@dataclass
class Proofs:
    """A server with all definitions that can run there."""

    prover: Prover
    definitions: list[Definition]

    def prove(self, definition: Definition, generate: int) -> Certificate:
        """Compare a definition; BLSError if it cannot be compared."""
        if definition.why_not:
            raise bls.BLSError(definition.why_not)
        asked, repository = definition.asked, self.prover.repository
        decoupled = self.prover.specs[definition.name].decoupled
        for inputs in asked:
            name = definition.name
            for response in repository.stream(name, inputs) if decoupled else [repository.infer(name, inputs)]:
                if response.error is not None and FOREVER.search(response.error.message()):
                    raise bls.BLSError("a caller on a server would wait forever")
        found = self.prover.prove(definition.name, *asked, generate=generate)
        if any(each.tensors for each in found.unequal):  # the two sides have other versions of NumPy and scikit-learn
            close = self.prover.prove(definition.name, *asked, generate=generate, tolerance=CLOSE)
            return close if close.equal else found
        return found


# Differences that are not the model's, by how they begin; docs/evidence/conformance.md tells more.
EXPLAINED = {
    r"an error only here: (?s:.*)OverflowError: Python integer": "NumPy 1.26",
    r"error code: gRPC status \w+ here, INTERNAL on the server": "release 24.10",
    # Of a request with optional inputs but without a required one; the guide of optional inputs sends it.
    r"errors: .*expected number of inputs between .* here, .Failed to process": "a server only counts the inputs",
    # `sensor` of notebook 07 waits for at most 60 ms in its queue.
    r".*(an error only [\w ]+: |errors: .*')Request timeout expired": "the time limit of a queue",
}


def explanation(found: Certificate) -> str:
    """Return what explains all differences of a certificate, or ""."""
    lines = [*found.varies, *(line for each in found.unequal for line in each.what)]
    reasons = [next((why for begin, why in EXPLAINED.items() if re.match(begin, line)), "") for line in lines]
    return ", ".join(sorted(set(reasons))) if all(reasons) else ""


@contextmanager
def proofs(folder: Path, definitions: Sequence[Definition], environment: ServerEnvironment) -> Iterator[Proofs]:
    """Load the definitions here, and serve those that load."""
    with bls.ModelRepository([folder, ROOT / SAMPLES]) as repository:
        for definition in definitions:
            if not definition.why_not:
                try:
                    load_with_callees(repository, [definition.name])
                    if (backend := repository.model(definition.name).backend) in BACKENDS:
                        definition.why_not = f"needs the backend {backend!r}"
                except bls.BLSError as error:
                    definition.why_not = str(error).splitlines()[0].rpartition("could not be loaded: ")[2]
        names = [definition.name for definition in definitions if not definition.why_not]
        with proving(repository, names, Strict(**vars(environment))) as prover:
            yield Proofs(prover, list(definitions))


def collect(folder: Path, wanted: Sequence[str] = ()) -> tuple[Path, list[Definition]]:
    """Run documents, by default all, in a copy; return the folder of their models, and the definitions."""
    warnings.simplefilter("ignore")  # of cells and models
    (folder / SAMPLES).symlink_to(ROOT / SAMPLES)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    shutil.copytree(ROOT / "docs" / "guides", folder / "docs" / "guides")
    collection = Collection(folder / "models")
    for name in wanted or DOCUMENTS:
        collection.run(folder / DOCUMENTS[name].relative_to(ROOT))
    return collection.folder, collection.definitions


if __name__ == "__main__":
    from tests.conformance.documents import collect  # pickle finds its classes there; a shell replaces `__main__`

    (Path(sys.argv[1]) / FOUND).write_bytes(pickle.dumps(collect(Path(sys.argv[1]), sys.argv[2:])))
    os._exit(0)  # some models of the guides never end
