"""`export`: write the models that serve here as a model repository for a server, a folder or an archive.

Guarantees: nothing is written where a model cannot ship; the folder is written whole or not at all; the same
models give the same bytes, and so does an export of what was loaded from one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bls_notebook.checking.check_input import CheckedModel, read_model
from bls_notebook.checking.shared_memory import shared_memory
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import host_of
from bls_notebook.records.progress import progress
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.source.layout import shown_path

from .folder_writer import Content, write_archive, write_folder
from .guide import guide
from .model_collection import (
    Model,
    collect,
    elsewhere,
    imported_names,
    python_files,
    refuse_remote,
    refuse_unfit,
    remote_models,
    requirements,
    total_bytes,
)
from .proof_files import proof_files
from .records import Exported, ExportedModel
from .targets import TARGETS, files_for, refuse_replicas

ARCHIVE = ".zip"


def export(
    place: str | Path,
    *names: str,
    target: str = "",
    replicas: int = 1,
    completed: bool = False,
    requests: Any = None,
    repo: ModelRepository | None = None,
) -> Exported:
    """Write models as a model repository for a server, with all that they call and that serves.

    Parameters
    ----------
    place : str or Path
        A folder (replaced if an export wrote it), or a file that ends with ``.zip``.
    *names : str
        Of models that serve; by default all.
    target : str
        Where they are to be served: ``docker``, ``compose``, ``kubernetes``, ``kserve`` or ``dynamo``.
    replicas : int
        Servers behind HAProxy; more than one for ``compose`` only, and no models with sequences.
    completed : bool
        Whether each config.pbtxt is written as completed; else it is as it was given.
    requests : mapping of str to sequence of mapping, or recording, optional
        What models are asked. The export has the answers then, to prove and to measure elsewhere.
    repo : ModelRepository, optional
        Default: `current_repository`.

    Returns
    -------
    Exported

    Raises
    ------
    BLSError
        A model cannot ship, or something in the folder was not exported; nothing has changed then.
    """
    host = host_of(repo)
    if target and target not in TARGETS:
        raise BLSError(f"export: for: got {target!r}, expected one of {', '.join(TARGETS)}")
    for name in names:
        host.ready(name)  # or says what to do
    remote = remote_models(host)
    refuse_remote(names, remote)
    asked = list(names) or [name for name in host.names() if name not in remote]
    if not asked:
        raise BLSError("export: no model is loaded; load or define one first")
    if not isinstance(place, (str, Path)) or not str(place).strip():
        raise BLSError(f"export: got {place!r}, expected the path of a folder, or of a file that ends with .zip")
    folder = Path(place).expanduser()
    with progress(f"exporting to {shown_path(folder)}"):
        models = collect(host, asked, completed)
        refuse_unfit(models)
        record = replace(describe(models, asked, folder), elsewhere=elsewhere(models, remote))
        refuse_replicas(target, replicas, record)
        more = files_for(target, record, replicas) if target else {}
        if requests is not None:
            specs = {name: models[name].loaded.spec for name in asked if name in models}
            more |= proof_files(record, specs, requests, host.repository)
        record = replace(record, target=target, files=tuple(more), replicas=replicas)
        files: dict[str, Content] = {
            f"{model.name}/{path}": content for model in models.values() for path, content in model.files.items()
        }
        files |= {name: text.encode() for name, text in (beside(record) | more).items()}
        (write_archive if folder.suffix == ARCHIVE else write_folder)(folder, files)
    return record


def describe(models: Mapping[str, Model], asked: Sequence[str], place: Path) -> Exported:
    """Return what an export of models is, before it is written."""
    every = [_record(model, models, model.name in asked) for model in models.values()]
    imported = {name for model in models.values() for name in imported_names(python_files(model.files))}
    pinned, unknown = requirements(imported)
    read: dict[str, CheckedModel] = {m.name: read_model(m.source, m.loaded) for m in models.values()}
    needs = sum(need.bytes for need in shared_memory(read))
    return Exported(
        place=shown_path(place),
        models=tuple(every),
        requirements=pinned,
        unknown=unknown,
        shm_bytes=needs,
        python=".".join(map(str, sys.version_info[:2])),
    )


def _record(model: Model, models: Mapping[str, Model], asked: bool) -> ExportedModel:
    spec = model.loaded.spec
    groups = spec.config.instance_group
    return ExportedModel(
        name=model.name,
        versions=tuple(model.source.versions),
        backend="" if spec.scheduler == "ensemble" else spec.backend,
        source=model.source.origin,
        files=len(model.files),
        bytes=total_bytes([model]),
        asked=asked,
        calls=model.calls,
        absent=tuple(name for name in model.calls if name not in models),
        on_gpu=any(group.kind == group.KIND_GPU for group in groups),
        sequences=spec.scheduler == "sequence",
        decoupled=spec.decoupled,
        shapes=tuple(
            f"{each.name}:{','.join(str(1 if length < 0 else length) for length in each.dims)}"
            for each in spec.config.input
            if any(length < 0 for length in each.dims) and not each.optional
        ),
    )


def beside(record: Exported) -> dict[str, str]:
    """Return the files that stand beside the models, by name."""
    files = {"README.md": guide(record)}
    if record.requirements or record.unknown:
        lines = [f"# What the models import, as it is where they ran (Python {record.python})."]
        lines += record.requirements
        lines += [f"# imported, and not installed where they ran: {name}" for name in record.unknown]
        files["requirements.txt"] = "\n".join(lines) + "\n"
    return files
