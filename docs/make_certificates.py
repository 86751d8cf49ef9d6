"""Prove the sample models and the models of the course, and write the table of certificates.

    python docs/make_certificates.py [NAME ...]

The script exports each model of model_repository/ and each model definition in notebooks/*.ipynb (also in exercises and
solutions), serves it with the real tritonserver, and sends the same requests to both: the notebook's own, and 200
generated ones. The new table replaces the table in docs/evidence/conformance.md. With names (of sample models, or of
notebooks, such as 02) the script only prints the table. It takes about 15 minutes on two cores.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.protobuf.json_format import MessageToDict

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.records.units import ns
from bls_notebook.repository.requests.sender import Sender
from bls_notebook.shipping.proof.prover import proving
from bls_notebook.shipping.records import Certificate

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence" / "conformance.md"
BEGIN, END = "<!-- certificates -->\n", "<!-- end of certificates -->\n"
GENERATED = 200
MOST_ASKED = 3  # at most so many of a notebook's own requests to a model
SAMPLE = "model_repository"
CLOSE = 1e-5  # tolerance: other versions of NumPy and scikit-learn add floats in another order
HEAD = (
    "| model | defined in | requests | same error on both | outcome | median here | on the server |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)
ELSEWHERE = ("digit_classifier_onnx", "digit_classifier_torch")  # backends that the wheel's server lacks
# Requests for the models that read the callee's name from an input.
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "bls_sync": {"MODEL_NAME": ["add_sub"], "INPUT0": [1, 2, 3, 4], "INPUT1": [5, 6, 7, 8]},
    "bls_async": {"MODEL_NAME": ["add_sub"], "INPUT0": [1, 2, 3, 4], "INPUT1": [5, 6, 7, 8]},
    "bls_decoupled_sync": {"MODEL_NAME": ["square_int32"], "IN": [3, 0, 2]},
    "bls_decoupled_async": {"MODEL_NAME": ["square_int32"], "IN": [3, 0, 2]},
}


@dataclass
class Subject:
    """A model definition: a folder with the exported model and its callees, or the reason why there is none."""

    model: str
    where: str
    folder: Path | None = None
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    why_not: str = ""


def main() -> None:
    """Prove all models, or the named ones."""
    warnings.simplefilter("ignore")  # NumPy warns about NaN and zeros in generated requests
    rows = []
    with tempfile.TemporaryDirectory(prefix="bls-notebook-certificates-") as temporary:
        for subject in subjects(Path(temporary), sys.argv[1:]):
            rows.append(row(subject))
            print(rows[-1], flush=True)
    if not sys.argv[1:]:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(before + BEGIN + HEAD + "\n".join(rows) + "\n" + END + after, encoding="utf-8")


def subjects(folder: Path, wanted: list[str]) -> Iterator[Subject]:
    """Yield the sample models, then the models of each notebook."""
    samples = ROOT / SAMPLE
    for name in sorted(each.name for each in samples.iterdir() if each.is_dir()):
        if not wanted or name in wanted:
            asked = [SAMPLES[name]] if name in SAMPLES else []
            yield Subject(name, SAMPLE, samples, asked)
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if not wanted or notebook.name[:2] in wanted:
            yield from defined_in(notebook, folder / notebook.stem)


def defined_in(notebook: Path, folder: Path) -> list[Subject]:
    """Run a notebook, and export each model definition after its cell."""
    import nbformat
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    seen = Seen(folder, notebook.stem.partition("_")[0])
    quiet = StringIO()
    with seen.following(), redirect_stdout(quiet), redirect_stderr(quiet), in_folder(notebook.parent):
        for cell in nbformat.read(notebook, as_version=4).cells:
            if cell.cell_type == "code":
                shell.run_cell(cell.source, store_history=True)
                seen.look(bls.current_repository())
        bls.current_repository().close()
        bls.set_current_repository(None)
    return [*seen.subjects.values()]


class Seen:
    """The model definitions of a notebook, with the requests that its cells sent to them."""

    def __init__(self, folder: Path, where: str) -> None:
        self.folder = folder
        self.where = where
        self.subjects: dict[tuple[str, str], Subject] = {}
        self.current: dict[str, Subject] = {}

    def look(self, repository: bls.ModelRepository) -> None:
        """Export the models that the last cell defined or changed."""
        samples = str(ROOT / SAMPLE)
        for name in repository._server.names():
            source = repository._service.sources[name]
            if str(source.folder).startswith(samples):
                continue
            code = "".join(f.read_text("utf-8", "replace") for f in sorted(source.folder.rglob("*.py")))
            config = repository.config(name)
            config.ClearField("instance_group")
            made = self.subjects.setdefault((name, code + str(config)), Subject(name, self.where))
            if made.folder is None:
                made.folder = self.folder / str(len(self.subjects))
            try:  # after every cell, because a later cell may define a callee
                bls.export(made.folder, name, repo=repository)
                made.why_not = ""
            except bls.BLSError as error:
                made.why_not = str(error).splitlines()[-1].strip()
            self.current[name] = made

    @contextmanager
    def following(self) -> Iterator[None]:
        """Record the requests to the current definitions."""
        whole = Sender.request

        def noting(sender: Sender, name: str, inputs: Mapping[str, Any], *more: Any, **options: Any) -> Any:
            if name in self.current and len(self.current[name].asked) < MOST_ASKED:
                self.current[name].asked.append(dict(inputs))
            return whole(sender, name, inputs, *more, **options)

        with patch.object(Sender, "request", noting):
            yield


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Change the working directory inside the block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def row(subject: Subject) -> str:
    """Compare a model with the server; return its row of the table."""
    begin = f"| {subject.model} | {subject.where} |"
    try:
        found = prove(subject)
    except bls.BLSError as error:
        return f"{begin} | | not compared: {why(error)} | | |"
    outcome = "equal" if found.equal else "differs"
    if found.equal and found.tolerance:
        outcome = f"equal within {found.tolerance:g}"
    times = f"{ns(found.here_ns)} | {ns(found.there_ns)}"
    return f"{begin} {found.requests} | {found.failed} | {outcome} | {times} |"


def why(error: bls.BLSError) -> str:
    """Return the reason in an error message, without paths of this machine."""
    line = str(error).splitlines()[-1].partition(";")[0].rpartition("Internal: ")[2]
    return re.sub(r"^\s*\w+: |, which cannot run on a server", "", line)


def on_cpu(repository: bls.ModelRepository, name: str) -> None:
    """Run a model that asks for a GPU on the CPU: the server has no GPU, and here it is simulated."""
    config = MessageToDict(repository.config(name), preserving_proto_field_name=True)
    groups = config.get("instance_group", [])
    if any(group.get("kind") == "KIND_GPU" for group in groups):
        config["instance_group"] = [{"count": groups[0].get("count", 1), "kind": "KIND_CPU"}]
        repository.load(name, config=config)


def prove(subject: Subject) -> Certificate:
    """Compare a model bit by bit; if only tensors differ, compare again within the tolerance `CLOSE`."""
    if subject.folder is None or subject.why_not:
        raise bls.BLSError(subject.why_not)
    with bls.ModelRepository(subject.folder) as repository:
        names = [each.name for each in repository.index()]
        if subject.where == SAMPLE:  # the folder has all samples, among them the callees
            names = [name for name in names if name == subject.model or name not in ELSEWHERE]
        for name in names:
            repository.load(name)
            on_cpu(repository, name)
        served = [subject.model, *SAMPLES.get(subject.model, {}).get("MODEL_NAME", ())]
        with proving(repository, served) as prover:
            found = prover.prove(subject.model, *subject.asked, generate=GENERATED)
            print(render(found).text if not found.equal else "", end="", file=sys.stderr)
            if any(each.tensors for each in found.unequal):
                close = prover.prove(subject.model, *subject.asked, generate=GENERATED, tolerance=CLOSE)
                return close if close.equal else found
            return found


if __name__ == "__main__":
    main()
