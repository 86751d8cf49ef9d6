"""Run folders of NVIDIA's own tests with docs/tritonserver.py in the place of the server, and count their tests.

    python docs/nvidia_tests.py SERVER PYTHON_BACKEND WORK [FOLDER ...]

SERVER and PYTHON_BACKEND are checkouts of `triton-inference-server/server` and `python_backend`, FOLDER is one of
`qa/`, such as L0_backend_python/bls. The first run copies `qa/` to WORK, and makes the models with NVIDIA's generators
(onnx and torch must be installed). Each `test.sh` runs in a network and a `/dev/shm` of its own, as root. Its log is in
WORK/logs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = "26.09"
SECONDS = 7200  # of one folder; L0_decoupled has delays of more than an hour
# Why tests fail, for the table in docs/evidence/conformance.md.
REASONS = {
    "test_bls_sequence": "needs an ONNX model with states, which the notebook's ONNX runtime does not keep",
    "test_multiprocess": "sends BLS requests from forked children, which are refused with the reason",
    "test_shm_leak": "the client of the model whose two tests above fail",
    "test_infer": "reads the free bytes of a stub process's shared memory, after killing the process",
    "test_headers": "the HTTP library removes a space at the end of a header's value, as RFC 9110 requires",
    "test_grpc": "needs a TensorRT model",
    "test_ff2": "needs a TensorRT model",
    "test_ff4": "needs a TensorRT model",
}
# What takes the place of C++ test backends; repeat and square are examples of python_backend.
IDENTITY = """import time, triton_python_backend_utils as pb_utils, json

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        text = lambda key: config.get("parameters", {}).get(key, {}).get("string_value", "0")
        self.seconds = int(text("execute_delay_ms")) / 1000

    def execute(self, requests):
        time.sleep(self.seconds)
        answers = []
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            absent = 0 * next(iter(inputs.values()))
            pairs = [(name, name.replace("OUTPUT", "INPUT")) for name in request.requested_output_names()]
            outputs = [pb_utils.Tensor(name, inputs.get(source, absent)) for name, source in pairs]
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
"""
ITERATIVE = """import time, numpy as np, triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.left = {}

    def execute(self, requests):
        for request in requests:
            number = request.correlation_id()
            first = int(pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy().flat[0])
            left = self.left.pop(number, first) - 1
            if left > 0:
                self.left[number] = left
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            time.sleep(0.5)
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[left]], np.int32))])
            flags = 0 if left > 0 else pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(response, flags=flags)
"""
GENERATORS = [  # the script of qa/common, its options, the folder of its models
    ("reshape", "--onnx --onnx_opset=16 --variable", "qa_reshape_model_repository"),
    ("reshape", "--libtorch --variable", "qa_reshape_model_repository"),
    ("reshape", "--ensemble", "qa_ensemble_model_repository/qa_reshape_model_repository"),
    ("identity", "--onnx --onnx_opset=16", "qa_identity_model_repository"),
    ("identity", "--libtorch", "qa_identity_model_repository"),
    ("identity", "--ensemble", "qa_ensemble_model_repository/qa_identity_model_repository"),
    ("sequence", "--onnx --onnx_opset=16", "qa_sequence_model_repository"),
    ("sequence", "--libtorch", "qa_sequence_model_repository"),
    ("implicit", "--onnx --onnx_opset=16", "qa_sequence_implicit_model_repository"),
    ("", "--onnx --onnx_opset=16", "qa_model_repository"),
    ("", "--libtorch", "qa_model_repository"),
]
# Changes: no signals to a model's process, which is the server; a lock for instances of one process; names of NumPy 2.
EDITS = {
    "L0_backend_python/model_readiness/test.sh": ("for SIGNAL in 11 9", "for SIGNAL in"),
    "L0_nan_inf/nan_inf_test.py": ("np.NINF", "-np.inf"),
    "L0_nan_inf/models/nan_inf_output/1/model.py": ("np.NINF", "-np.inf"),
    "python_models/model_init_del/util.py": ("fcntl.lockf", "fcntl.flock"),
}
CLIENT = """#!/bin/bash
echo "== $*" >> "$CLIENTS"
set -o pipefail
{python} "$@" 2>&1 | tee -a "$CLIENTS"
"""
RAN = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?", re.M)  # unittest
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")  # of pytest, on its last line
NAMES = re.compile(r"^(?:FAIL|ERROR): (\w+)|^(?:FAILED|ERROR) \S+::(\w+)", re.M)


def prepare(server: Path, backend: Path, work: Path) -> None:
    """Copy the tests with the models that NVIDIA's Dockerfile.QA adds, and make programs for the scripts."""
    qa, triton, data = work / "qa", work / "tritonserver", work / "data"
    shutil.copytree(server / "qa", qa)
    for script in (*qa.rglob("*.sh"), *qa.rglob("*.py")):
        text = script.read_text("utf-8", "surrogateescape")
        changed = text.replace("/data/inferenceserver", str(data)).replace("/opt/tritonserver", str(triton))
        if changed != text:
            script.write_text(changed, "utf-8", "surrogateescape")
    backends = f"--backend-directory={triton / 'backends'}"
    for name, edit in EDITS.items():
        write(qa / name, (qa / name).read_text().replace(*edit))
    program(triton / "bin" / "tritonserver", f'exec {sys.executable} {ROOT / "docs/tritonserver.py"} {backends} "$@"')
    for name in ("python", "python3"):
        write(work / "bin" / name, CLIENT.format(python=sys.executable))
    write(work / "bin" / "pytest", CLIENT.format(python=f"{sys.executable} -m pytest"))
    write(qa / "common" / "triton_shm_monitor.py", "")  # it would read regions of stub processes; there are none
    program(work / "bin" / "git", f"[ $1 != clone ] || cp -r {backend} python_backend")
    for name in ("pip", "pip3", "apt", "apt-get", "wget", "conda"):
        program(work / "bin" / name, "exit 0")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "sseclient-py", "requests", "--target", work / "site"]
    subprocess.run(pip, check=True)
    examples = backend / "examples" / "decoupled"
    codes = {"identity": IDENTITY, "iterative_sequence": ITERATIVE}
    codes |= {name: (examples / f"{name}_model.py").read_text() for name in ("repeat", "square")}
    for name, code in codes.items():
        write(triton / "backends" / name / "model.py", code)
    (qa / "L0_iterative_sequence/models/iterative_sequence/1").mkdir()
    models = qa / "L0_decoupled" / "models"
    for name in ("repeat", "square"):
        shutil.copytree(server / "src/test/models" / f"{name}_int32", models / f"{name}_int32")
    for model in models.iterdir():
        (model / "1").mkdir(exist_ok=True)
    shutil.copytree(models, qa / "L0_decoupled" / "python_models", dirs_exist_ok=True)
    for name in ("repeat", "square"):
        model = qa / "L0_decoupled" / "python_models" / f"{name}_int32"
        shutil.copy(examples / f"{name}_model.py", model / "1" / "model.py")
        shutil.copy(examples / f"{name}_config.pbtxt", model / "config.pbtxt")
    simple = server / "docs/examples/model_repository/simple/1"
    for version in "12":
        shutil.copytree(simple, qa / "L0_simple_ensemble/models/simple" / version, dirs_exist_ok=True)
    for name, options, folder in GENERATORS:
        script = f"gen_qa_{name}_models.py" if name else "gen_qa_models.py"
        command = [sys.executable, script, *options.split(), f"--models_dir={data / VERSION / folder}"]
        (data / VERSION / folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(command, cwd=qa / "common", check=False, stdout=subprocess.DEVNULL)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def program(path: Path, line: str) -> None:
    write(path, f"#!/bin/bash\n{line}\n")


def run(work: Path, folder: str) -> str:
    """Run the script of a folder; return its row: the tests that passed, of clients and inside models, and failures."""
    place = work / "qa" / folder
    log = work / "logs" / f"{folder.replace('/', '.')}.log"
    log.parent.mkdir(exist_ok=True)
    clients = log.with_suffix(".clients")
    clients.write_text("")
    before = {path: path.stat().st_mtime for path in place.glob("*.log")}
    environment = os.environ | {
        "PATH": f"{work / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{work / 'qa/common'}:{work / 'site'}",
        "CLIENTS": str(clients), "BLS_NOTEBOOK_SIMULATED_GPUS": "1", "TRITON_DIR": str(work / "tritonserver"),
        "SERVER": str(work / "tritonserver/bin/tritonserver"), "BACKEND_DIR": str(work / "tritonserver/backends"),
        "DATADIR": str(work / "data" / VERSION), "MODELDIR": str(work / "qa" / "L0_backend_python"),
        "NVIDIA_TRITON_SERVER_VERSION": VERSION, "TRITONSERVER_IPADDR": "localhost", "TEST_WINDOWS": "0",
        "TEST_JETSON": "0", "SERVER_TIMEOUT": "300", "PYTHON_BACKEND_REPO_TAG": "main", "PYTHON_ENV_VERSION": "12",
        "BACKENDS": "onnx libtorch",
    }  # fmt: skip
    begin = "ip link set lo up; mount -t tmpfs tmpfs /dev/shm; exec bash test.sh"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", begin],
            cwd=place, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            status = f"exit status {process.wait(SECONDS)}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = f"stopped after {SECONDS} s"
    inside = "".join(
        path.read_text("utf-8", "replace")
        for path in place.glob("*.log") if path not in before or path.stat().st_mtime > before[path]
        if "server" in path.name
    )  # fmt: skip
    text = clients.read_text("utf-8", "replace")
    failed = dict.fromkeys(a or b for a, b in NAMES.findall(text + inside))
    delayed = (
        "sets a delay in the server's environment" if folder == "L0_request_cancellation" else "no reason is known"
    )
    reasons = [f"`{name}`: {REASONS.get(name, delayed)}" for name in failed]
    return f"| {folder} | {counted(text)} | {counted(inside)} | {'; '.join([status, *reasons])} |"


def counted(text: str) -> str:
    """Return the tests that passed, of all that were not skipped, in the output of unittest and pytest."""
    counts: Counter[str] = Counter()
    for number, problems in RAN.findall(text):
        counts["ran"] += int(number)
        for kind, count in re.findall(r"(\w+)=(\d+)", problems):
            counts["skipped" if kind == "skipped" else "failed"] += int(count)
    for line in re.findall(r"^=+ (.*\bin [\d.]+s.*) =+$", text, re.M):
        for count, kind in COUNTS.findall(line):
            counts["ran"] += int(count)
            counts["failed"] += int(count) * kind.startswith(("fail", "error"))
            counts["skipped"] += int(count) * (kind == "skipped")
    ran = counts["ran"] - counts["skipped"]
    return f"{ran - counts['failed']} of {ran}" if ran else ""


if __name__ == "__main__":
    source, python_backend, target = (Path(place).resolve() for place in sys.argv[1:4])
    if not target.exists():
        prepare(source, python_backend, target)
    for each in sys.argv[4:]:
        print(run(target, each), flush=True)
