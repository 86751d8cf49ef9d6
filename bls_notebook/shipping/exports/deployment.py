"""The README and the deployment files of an export, from the templates in `files/`.

Values that the user must fill in are marked with ``# <-``.
"""

from __future__ import annotations

import json
import shlex
from importlib import resources
from string import Template
from urllib.parse import quote

from bls_notebook.checking.environments import IMAGE_PYTHON
from bls_notebook.checking.releases import newest
from bls_notebook.engine import BLSError
from bls_notebook.network.kserve.address import PLAIN
from bls_notebook.records import size
from bls_notebook.shipping.records import Exported

IMAGE = "nvcr.io/nvidia/tritonserver"
RELEASE = newest()
"""Default release of Triton."""


def shm_mib(record: Exported) -> int:
    """Return the MiB of ``/dev/shm`` to reserve: a quarter more than the models need, at least 64."""
    return max(64, -(-record.shm_bytes * 5 // 4 // (1 << 20)))


def guide(record: Exported) -> str:
    """Return the README in Markdown: how to serve, test and measure the models."""
    notes = [
        f"The models' processes need about {size(record.shm_bytes)} of `/dev/shm` with full batches, and more for "
        "tensors of unknown size; a container has 64 MiB by default.",
        *record.warnings,
    ]
    if record.replicas > 1:
        balanced = (
            f"compose.yaml runs {record.replicas} servers behind HAProxy, on the same ports; each request goes to a "
            "ready server. Statistics, metrics and model control apply to single servers."
        )
        notes.insert(0, balanced)
    measured = [name for name in record.names if f"perf_{name}.json" in record.files]
    commands = [_measure(record, name, f"perf_{name}.json") for name in measured]
    first = record.entries[0]
    if first not in measured and any(each.shapes for each in record.models if each.name == first):
        notes.append("`perf_analyzer` above sends random data of the smallest shapes: `--shape` gives it yours.")
    install = "pip install -r /models/requirements.txt && " if _needs_packages(record) else ""
    values = {
        "image": f"{IMAGE}:{RELEASE}",
        "python": IMAGE_PYTHON,
        "here": record.python,
        "shm": str(shm_mib(record)),
        "serve": shlex.quote(
            f"{install}tritonserver {shlex.join(('--model-repository=/models', *record.server_options))}"
        ),
        "at": shlex.quote(f"localhost:8000/v2/models/{quote(first, safe=PLAIN)}"),
        "measure": _measure(record, first, f"/models/perf_{first}.json" if first in measured else ""),
        "mount": '-v "$PWD":/models ' if first in measured else "",
        "root": "/mnt/models" if record.target == "kserve" else "/models",
        "names": ", ".join(record.names),
        "rows": "\n".join(f"| {m.name} | {m.backend or 'ensemble'} | {', '.join(m.uses)} |" for m in record.models),
        "notes": "\n".join(f"- {note}" for note in notes),
        "measured": "".join(f"\n{command}" for command in commands),
    }
    parts = ["guide.md"]
    parts += [f"guide_{record.target}.md"] if record.target else []
    parts += ["guide_image.md"] if record.target == "kserve" and _needs_packages(record) else []
    parts += ["guide_proof.md"] if "prove.py" in record.files else []
    parts += ["guide_packages.md"] if _needs_packages(record) else []
    folder = resources.files(__package__) / "files"
    return "".join(Template((folder / part).read_text("utf-8")).substitute(values) for part in parts)


def _needs_packages(record: Exported) -> bool:
    """Return True if the models need packages that the server's image lacks."""
    return any(not name.startswith("numpy<") for name in record.requirements)


def _measure(record: Exported, name: str, data: str = "") -> str:
    """Return perf_analyzer's command for a model: with data from a file, or random data of the smallest shapes."""
    model = next(each for each in record.models if each.name == name)
    options = ["perf_analyzer", "-m", name]
    if model.decoupled:
        options += ["-i", "grpc", "-u", "localhost:8001", "--streaming"]
    options += ["--input-data", data] if data else [part for shape in model.shapes for part in ("--shape", shape)]
    return shlex.join(options)


TARGETS = {
    "docker": ("Dockerfile", "run.sh"),
    "compose": ("Dockerfile", "compose.yaml"),
    "kubernetes": ("Dockerfile", "kubernetes.yaml"),
    "kserve": ("inferenceservice.yaml",),
    "dynamo": ("dynamo.sh",),
}
_INSTALL = """\
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --requirement /tmp/requirements.txt
"""
_COMPOSE_GPUS = """\
    deploy:
      resources:
        reservations:
          devices:
            - {driver: nvidia, count: all, capabilities: [gpu]}
"""
_IMAGE_PUSHED = "image: registry.example.com/triton-models:1 # <- the image that you pushed;"
_REPLICAS = 4  # limit of autoscaling, if any replica may serve any request: without sequences and model control
MOST_REPLICAS = 64
_REPLICATED = {"Dockerfile": "Dockerfile", "compose.yaml": "replicas.yaml", "haproxy.cfg": "haproxy.cfg"}


def refuse_target(target: str, replicas: int, record: Exported) -> None:
    """Raise BLSError if these models cannot run on the target or on several servers, or the number is invalid."""
    if target == "dynamo" and record.controlling:
        raise BLSError(
            f"export: target dynamo: {', '.join(record.controlling)} uses pb_utils.load_model or unload_model, which "
            "needs the explicit model control mode, but Dynamo's worker has no option for it; choose another target"
        )
    if target == "dynamo" and record.options:
        raise BLSError(
            f"export: target dynamo: the repository was created with {' '.join(record.options)}, but Dynamo's worker "
            "has no such options; choose another target, or a repository without them"
        )
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 1 <= replicas <= MOST_REPLICAS:
        raise BLSError(f"export: replicas: got {replicas!r}, expected a number from 1 to {MOST_REPLICAS}")
    if replicas == 1:
        return
    if target != "compose":
        wrong = f"got {replicas} for {target or 'no target'!r}, expected 1"
        raise BLSError(f"export: replicas: {wrong}: only compose supports several servers")
    if stateful := [model.name for model in record.models if model.sequences]:
        raise BLSError(
            f"export: replicas: {', '.join(stateful)} batches sequences: all requests of a sequence must reach "
            "the same replica, but a proxy cannot see the correlation ID inside the message. Export it with "
            "one replica, separately from the models without state"
        )


def files_for(target: str, record: Exported, replicas: int = 1) -> dict[str, str]:
    """Return the files of a deployment target: text by file name."""
    mib, gpu = shm_mib(record), record.on_gpu
    values = {
        "image": f"{IMAGE}:{RELEASE}-py3",
        "install": _INSTALL if _needs_packages(record) else "",
        "copies": ""
        if target == "kserve"
        else "\n".join(f"COPY {json.dumps([name, f'/models/{name}'])}" for name in record.names),
        "command": json.dumps(["tritonserver", "--model-repository=/models", *record.server_options]),
        "args": f"\n      args: {json.dumps(record.server_options)}" if record.server_options else "",
        "runtime": f"{_IMAGE_PUSHED} it replaces the runtime's image, which lacks the models' packages"
        if _needs_packages(record)
        else f"runtimeVersion: {RELEASE}-py3",
        "shm": str(mib),
        "memory": f"{4 + -(-mib // 1024)}Gi",
        "replicas": str(1 if any(model.sequences or model.controls for model in record.models) else _REPLICAS),
        "docker_gpus": "--gpus all " if gpu else "",
        "kubernetes_gpus": ", nvidia.com/gpu: 1" if gpu else "",
        "compose_gpus": _COMPOSE_GPUS if gpu else "",
        "triton_names": ", ".join(_hosts(replicas)),
        "more_tritons": "".join(f"  {host}: *triton\n" for host in _hosts(replicas)[1:]),
        "http_servers": _servers(replicas, "HTTP", 8000),
        "grpc_servers": _servers(replicas, "GRPC", 8001, " proto h2"),
    }
    folder = resources.files(__package__) / "files"
    templates = _REPLICATED if replicas > 1 else {name: name for name in TARGETS[target]}
    if target == "kserve" and _needs_packages(record):
        templates = {"Dockerfile": "Dockerfile", **templates}
    texts = {name: (folder / file).read_text(encoding="utf-8") for name, file in templates.items()}
    return {name: Template(text).substitute(values).rstrip() + "\n" for name, text in texts.items()}


def _hosts(replicas: int) -> list[str]:
    return [f"triton-{number}" for number in range(1, replicas + 1)]


def _servers(replicas: int, protocol: str, port: int, options: str = "") -> str:
    """Return HAProxy's server lines: each replica by its host name, unless an environment variable is set."""
    return "\n".join(
        f'    server {host} "${{TRITON_{number}_{protocol}-{host}:{port}}}"{options}'
        for number, host in enumerate(_hosts(replicas), 1)
    )
