"""Checks that the computed --shm-size is right: it suffices for each model, and less than half does not.

    python docs/check_shared_memory.py [MODEL ...]

Runs the real tritonserver on an export of each sample model, and of one that keeps tensors of 16 MB, where
/dev/shm has the size that the export says, and once more where it has less than half of that; a full batch is
sent each time. As root on Linux: /dev/shm is mounted anew, in a namespace of its own (``unshare``). It takes
some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import bls_notebook as bls
from bls_notebook.shipping.servers.tritonserver import TritonServer, TritonServerError

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
    """Check all, or those that are named; return 1 where one is not as it should be."""
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
            sizes = (whole * 5 // 4, whole * 49 // 100)  # as the export asks for, but for what docker gives anyway
            found = [limited(exported.place, size, exported.names) for size in sizes]
            good = found[0] == "" != found[1]
            wrong += not good
            said = " | ".join(each or "served" for each in found)
            print(f"{'good' if good else 'WRONG'} | {name}: {whole >> 20} MiB | {said}", flush=True)
    return int(bool(wrong))


def limited(folder: str, size: int, names: tuple[str, ...]) -> str:
    """Serve models where /dev/shm has that size, and return what the server had to say of that."""
    command = ["unshare", "--mount", sys.executable, __file__, "--inside", folder, str(size), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return str(json.loads(done.stdout.splitlines()[-1]))


def inside(folder: str, size: str, *names: str) -> str:
    """Do that in a namespace of one's own; return the line about shared memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"], check=True)
    server = TritonServer(folder, load=names)
    try:
        with server:
            for name in names:
                ask(server, name)
    except TritonServerError as error:
        said = f"{error}\n{server.log()}".splitlines()
        found = (line.rpartition("] ")[2] for line in said if "shared memory" in line.lower())
        return next(found, said[0])[:110]
    return ""


def ask(server: TritonServer, name: str) -> None:
    """Send a full batch of ones; whatever it is answered, but for a lack of memory."""
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
