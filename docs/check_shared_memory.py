"""Check the computed --shm-size: it is enough for each model, and less than half of it is not.

    python docs/check_shared_memory.py [MODEL ...]

The script exports each sample model, and a model that keeps tensors of 16 MB. It runs the real tritonserver twice on
each export, with a /dev/shm of the computed size and of less than half that size, and sends a full batch each time.
It needs root on Linux, because it mounts a private /dev/shm (``unshare``). It takes a few minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import TritonServerError
from bls_notebook.shipping.servers.tritonserver import TritonServer

SAMPLES = Path(__file__).resolve().parents[1] / "model_repository"
ELSEWHERE = ("digit_classifier_onnx", "digit_classifier_torch")  # backends that the wheel's server lacks
KEEPS = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        self.kept = [pb_utils.get_input_tensor_by_name(request, "IN") for request in requests]
        outputs = [pb_utils.Tensor("OUT", 2 * each.as_numpy()) for each in self.kept]
        return [pb_utils.InferenceResponse([each]) for each in outputs]
"""
TENSOR = '{ name: "%s" data_type: TYPE_FP32 dims: [ 1048576 ] }'
LARGE = f"max_batch_size: 4\ninput {TENSOR % 'IN'}\noutput {TENSOR % 'OUT'}\n"


def main() -> int:
    """Check all models, or the named ones; return 1 if the size of one is wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary, bls.ModelRepository(SAMPLES) as repository:
        repository.define("large", KEEPS, LARGE)
        names = [each.name for each in repository.index() if each.name not in ELSEWHERE]
        for name in names:
            if name != "large":
                repository.load(name)
        for name in sys.argv[1:] or names:
            exported = bls.export(Path(temporary) / name, name, repo=repository)
            whole = exported.shm_bytes
            sizes = (whole * 5 // 4, whole * 49 // 100)  # as `shm_mib`, without docker's minimum
            found = [limited(exported.place, size, exported.names) for size in sizes]
            good = found[0] == "" != found[1]
            wrong += not good
            said = " | ".join(each or "served" for each in found)
            print(f"{'good' if good else 'WRONG'} | {name}: {whole >> 20} MiB | {said}", flush=True)
    return int(bool(wrong))


def limited(folder: str, size: int, names: tuple[str, ...]) -> str:
    """Serve models with a /dev/shm of this size; return the server's error about it, or an empty text."""
    command = ["unshare", "--mount", sys.executable, __file__, "--inside", folder, str(size), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return str(json.loads(done.stdout.splitlines()[-1]))


def inside(folder: str, size: str, *names: str) -> str:
    """Run the server in this private namespace; return the first line about shared memory, or an empty text."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"], check=True)
    server = TritonServer(folder, load=names)
    try:
        with server:
            for name in names:
                ask(server, name)
    except TritonServerError as error:
        lines = f"{error}\n{server.log()}".splitlines()
        found = (line.rpartition("] ")[2] for line in lines if "shared memory" in line.lower())
        return next(found, lines[0])[:110]
    return ""


def ask(server: TritonServer, name: str) -> None:
    """Send a full batch of ones; raise only if the server lacks memory or has stopped."""
    config = server.config(name)
    if config.get("model_transaction_policy", {}).get("decoupled"):
        return
    batch = [int(config["max_batch_size"])] if config.get("max_batch_size") else []
    inputs = {}
    for each in config["input"]:
        kind = each["data_type"].removeprefix("TYPE_").lower().replace("fp", "float")
        shape = [*batch, *(max(1, int(size)) for size in each["dims"])]
        inputs[each["name"]] = np.ones(shape, object if kind == "string" else kind)
    try:
        server.infer(name, inputs)
    except TritonServerError as error:
        if "memory" in str(error) or server.pid is None:
            raise


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(inside(*sys.argv[2:])))
    else:
        sys.exit(main())
