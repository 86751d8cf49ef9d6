"""What a place to serve needs beside the models: its files, filled in from `files/`.

What only a person can know is marked there with ``# <-``.
"""

from __future__ import annotations

import json
from importlib import resources
from string import Template

from bls_notebook.observe.records.shipping.exported import Exported

from .guide import IMAGE, RELEASE, shm_mib

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


def files_for(target: str, record: Exported) -> dict[str, str]:
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
    }
    folder = resources.files(__package__) / "files"
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in TARGETS[target]}
    return {name: Template(text).substitute(values).rstrip() + "\n" for name, text in texts.items()}
