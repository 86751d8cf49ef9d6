"""What a place to serve needs beside the models: its files, filled in from `files/`.

What only a person can know is marked there with ``# <-``.
"""

from __future__ import annotations

import json
from importlib import resources
from string import Template

from bls_notebook.engine.errors import BLSError

from .guide import IMAGE, RELEASE, shm_mib
from .records import Exported

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
_REPLICAS = 4  # at most, where any of them may serve a request
MOST_REPLICAS = 64
_REPLICATED = {"Dockerfile": "Dockerfile", "compose.yaml": "replicas.yaml", "haproxy.cfg": "haproxy.cfg"}


def refuse_replicas(target: str, replicas: int, record: Exported) -> None:
    """Raise where several servers are asked for, and cannot share the requests to these models."""
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 1 <= replicas <= MOST_REPLICAS:
        raise BLSError(f"export: replicas: got {replicas!r}, expected a number from 1 to {MOST_REPLICAS}")
    if replicas == 1:
        return
    if target != "compose":
        raise BLSError(f"export: replicas: got {replicas} for {target or 'no place'!r}, expected 1: compose takes more")
    if kept := [model.name for model in record.models if model.sequences]:
        raise BLSError(
            f"export: replicas: {', '.join(kept)} batches sequences: all requests of one have to reach the "
            "same replica, and a proxy cannot see which these are, as the correlation ID is inside the "
            "message. Export it with one replica, apart from models that keep no state"
        )


def files_for(target: str, record: Exported, replicas: int = 1) -> dict[str, str]:
    """Return the files that a target needs, by name."""
    mib, gpu = shm_mib(record), record.on_gpu
    values = {
        "tag": f"{RELEASE}-py3",
        "image": f"{IMAGE}:{RELEASE}-py3",
        "install": _INSTALL if record.requirements else "",
        "copies": "\n".join(f"COPY {json.dumps([name, f'/models/{name}'])}" for name in record.names),
        "shm": str(mib),
        "memory": f"{4 + -(-mib // 1024)}Gi",
        "replicas": str(1 if record.sequences else _REPLICAS),
        "docker_gpus": "--gpus all " if gpu else "",
        "kubernetes_gpus": ", nvidia.com/gpu: 1" if gpu else "",
        "compose_gpus": _COMPOSE_GPUS if gpu else "",
        "triton_names": ", ".join(_hosts(replicas)),
        "more_tritons": "".join(f"  {host}: *triton\n" for host in _hosts(replicas)[1:]),
        "http_servers": _servers(replicas, "HTTP", 8000),
        "grpc_servers": _servers(replicas, "GRPC", 8001, " proto h2"),
    }
    folder = resources.files(__package__) / "files"
    wanted = _REPLICATED if replicas > 1 else {name: name for name in TARGETS[target]}
    texts = {name: (folder / file).read_text(encoding="utf-8") for name, file in wanted.items()}
    return {name: Template(text).substitute(values).rstrip() + "\n" for name, text in texts.items()}


def _hosts(replicas: int) -> list[str]:
    return [f"triton-{number}" for number in range(1, replicas + 1)]


def _servers(replicas: int, protocol: str, port: int, more: str = "") -> str:
    """Return HAProxy's lines: each replica by its name, or where an environment variable says."""
    return "\n".join(
        f'    server {host} "${{TRITON_{number}_{protocol}-{host}:{port}}}"{more}'
        for number, host in enumerate(_hosts(replicas), 1)
    )
