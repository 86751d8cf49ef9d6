"""The README of an export: how to serve, test and measure it."""

from __future__ import annotations

import shlex
from importlib import resources
from string import Template
from urllib.parse import quote

from bls_notebook.network.kserve.address import PLAIN
from bls_notebook.records.quantities import size

from .records import Exported

IMAGE = "nvcr.io/nvidia/tritonserver"
RELEASE = "26.07"
"""Of Triton, by default."""
PYTHON = "3.12"
"""Of the Python models in its image, from release 24.11 on."""

_MIB = 1 << 20


def shm_mib(record: Exported) -> int:
    """Return how many MiB of ``/dev/shm`` to ask for: what is needed and a quarter more."""
    return max(64, -(-record.shm_bytes * 5 // 4 // _MIB))


def guide(record: Exported) -> str:
    """Return the text, in Markdown: those of `files/`, filled in."""
    first = record.entries[0]
    calls = sorted({(name, m.name) for m in record.models for name in m.absent})
    there = dict(record.elsewhere)
    notes = [
        f"The models' processes need {size(record.shm_bytes)} of `/dev/shm`, tensors of unknown sizes aside; "
        "a container has 64 MiB unless it asks for more.",
        *(
            f"`{caller}` calls `{name}`, which is served at {there[name]}: have it served there, by the same "
            "server as its callers, for a BLS request does not leave its server."
            if name in there
            else f"`{caller}` calls `{name}`, which is not in here: add it."
            for name, caller in calls
        ),
        *(f"`{name}` is imported, and its package is not known: add it." for name in record.unknown),
    ]
    if record.replicas > 1:
        shared = (
            f"`docker compose up --build` runs {record.replicas} servers behind HAProxy, at the same ports; "
            "a request goes to one that is ready. Statistics, metrics and the control of models are each "
            "server's own."
        )
        notes.insert(0, shared)
    measured = [name for name in record.names if f"perf_{name}.json" in record.files]
    commands = [_measure(record, name, f"perf_{name}.json") for name in measured]
    for name in record.names:
        if f"analyze_{name}.yaml" in record.files:
            commands.append(shlex.join(["model-analyzer", "profile", "-f", f"analyze_{name}.yaml"]))
    values = {
        "image": f"{IMAGE}:{RELEASE}",
        "python": PYTHON,
        "here": record.python,
        "shm": str(shm_mib(record)),
        "install": "pip install -r /models/requirements.txt && " if record.requirements else "",
        "at": shlex.quote(f"localhost:8000/v2/models/{quote(first, safe=PLAIN)}"),
        "measure": _measure(record, first),
        "rows": "\n".join(f"| {m.name} | {m.backend or 'ensemble'} | {', '.join(m.calls)} |" for m in record.models),
        "notes": "\n".join(f"- {note}" for note in notes),
        "measured": "".join(f"\n{command}" for command in commands),
    }
    parts = ["guide.md"]
    parts += ["guide_proof.md"] if "prove.py" in record.files else []
    parts += ["guide_packages.md"] if record.requirements else []
    folder = resources.files(__package__) / "files"
    return "".join(Template((folder / part).read_text("utf-8")).substitute(values) for part in parts)


def _measure(record: Exported, name: str, data: str = "") -> str:
    """The command that measures a model: with data from a file, or random ones of the smallest shapes."""
    model = next(each for each in record.models if each.name == name)
    options = ["perf_analyzer", "-m", name]
    if model.decoupled:
        options += ["-i", "grpc", "-u", "localhost:8001", "--streaming"]
    options += ["--input-data", data] if data else [part for s in model.shapes for part in ("--shape", s)]
    return shlex.join(options)
