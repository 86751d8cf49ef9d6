"""The README of an export: how to serve, test and measure it."""

from __future__ import annotations

import shlex
from urllib.parse import quote

from bls_notebook.observe.quantities import size
from bls_notebook.observe.records.shipping.exported import Exported

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
    first = record.entries[0]
    at = shlex.quote(f"localhost:8000/v2/models/{quote(first, safe='')}")
    install = "pip install -r /models/requirements.txt && " if record.requirements else ""
    serve = (
        f'docker run --rm --shm-size={shm_mib(record)}m -p 8000-8002:8000-8002 -v "$PWD":/models '
        f"{IMAGE}:{RELEASE}-py3 sh -c '{install}tritonserver --model-repository=/models'"
    )
    rows = [f"| {m.name} | {m.backend or 'ensemble'} | {', '.join(m.calls)} |" for m in record.models]
    absent = sorted({(name, m.name) for m in record.models for name in m.absent})
    there = dict(record.elsewhere)
    missing = [
        f"- `{caller}` calls `{name}`, which is served at {there[name]}: have it served there, by the same "
        "server as its callers, for a BLS request does not leave its server."
        if name in there
        else f"- `{caller}` calls `{name}`, which is not in here: add it."
        for name, caller in absent
    ]
    unknown = [f"- `{name}` is imported, and its package is not known: add it." for name in record.unknown]
    shared = [
        f"- `docker compose up --build` runs {record.replicas} servers behind HAProxy, at the same "
        "ports; a request goes to one that is ready. Statistics, metrics and the control of models are each "
        "server's own."
    ]
    notes = [
        *(shared if record.replicas > 1 else ()),
        f"- The models' processes need {size(record.shm_bytes)} of `/dev/shm`, tensors of unknown sizes "
        "aside; a container has 64 MiB unless it asks for more.",
        *missing,
        *unknown,
    ]
    lines = [
        "# A Triton model repository",
        "",
        "Each folder is a model. To serve, test and measure them:",
        "",
        "```sh",
        serve,
        f"curl --fail-with-body {at}/ready && curl {at}/config",
        f"docker run --rm --network=host {IMAGE}:{RELEASE}-py3-sdk {_measure(record, first)}",
        "```",
        "",
        "| model | backend | calls |",
        "| --- | --- | --- |",
        *rows,
        "",
        *notes,
        "",
    ]
    proof = _proof(record) if "prove.py" in record.files else []
    return "\n".join(lines + proof + (_packed(record) if record.requirements else []))


def _measure(record: Exported, name: str, data: str = "") -> str:
    """The command that measures a model: with data from a file, or random ones of the smallest shapes."""
    model = next(each for each in record.models if each.name == name)
    options = ["perf_analyzer", "-m", name]
    if model.decoupled:
        options += ["-i", "grpc", "-u", "localhost:8001", "--streaming"]
    options += ["--input-data", data] if data else [part for s in model.shapes for part in ("--shape", s)]
    return shlex.join(options)


def _proof(record: Exported) -> list[str]:
    """How to prove that a server answers as the models did, and to measure it with the same requests."""
    measured = [name for name in record.names if f"perf_{name}.json" in record.files]
    return [
        "## Proof",
        "",
        "`requests.json` has requests, with the answers that the models gave where they were written. Where "
        "the server runs, with tritonclient and NumPy alone:",
        "",
        "```sh",
        'pip install "tritonclient[grpc]" numpy',
        "python prove.py localhost:8001",
        *(_measure(record, name, f"perf_{name}.json") for name in measured),
        *(
            shlex.join(["model-analyzer", "profile", "-f", f"analyze_{name}.yaml"])
            for name in record.names
            if f"analyze_{name}.yaml" in record.files
        ),
        "```",
        "",
        f"`perf_analyzer` and `model-analyzer` are in the image `{IMAGE}:{RELEASE}-py3-sdk`.",
        "`perf_analyzer` compares bytes: where another version of a library rounds otherwise, take the "
        "`validation_data` out of its file, and give `prove.py` a `--tolerance`.",
        "",
    ]


def _packed(record: Exported) -> list[str]:
    """How to bring the packages as an environment, for a server whose image is not to be changed."""
    return [
        "## Packages",
        "",
        "`requirements.txt` has what the models import, in the versions that they ran with on Python "
        f"{record.python}; the image has Python {PYTHON}. Instead of installing them at the start, pack an "
        "environment once:",
        "",
        "```sh",
        f"conda create -y -n models python={PYTHON} && conda activate models",
        "pip install -r requirements.txt conda-pack",
        "PYTHONNOUSERSITE=True conda-pack -o environment.tar.gz",
        "```",
        "",
        "and name it in the config.pbtxt of each model that needs it:",
        "",
        "```",
        'parameters: { key: "EXECUTION_ENV_PATH", value: { string_value: "/models/environment.tar.gz" } }',
        "```",
        "",
    ]
