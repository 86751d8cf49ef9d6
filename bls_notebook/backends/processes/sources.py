"""The source texts that a worker runs, and the first statements of its process.

The worker's environment has nothing of this package. So the kernel sends the modules as text, and stand-ins for those
that a worker does not need. They are importable only until the worker has started: a model that imports
`bls_notebook` gets the installed package.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_MODULES = (
    "pb_utils", "pb_utils._runtime", "pb_utils.dtypes", "pb_utils.errors", "pb_utils.metrics", "pb_utils.model_config",
    "pb_utils.options", "pb_utils.request", "pb_utils.response", "pb_utils.server", "pb_utils.stub_modules",
    "pb_utils.tensor", "records.units", "devices.device", "devices.dlpack", "backends.processes.cuda_driver",
    "backends.processes.segments", "backends.processes.wakeups", "backends.processes.messages",
    "backends.processes.worker_gpus", "backends.processes.worker_exchange",
    "backends.processes.error_facts", "backends.processes.worker_link", "backends.processes.worker_objects",
    "backends.processes.worker_probes", "backends.processes.worker", "backends.processes.worker_forks",
)  # fmt: skip
_STAND_INS = {
    "": "", "records": "", "backends": "", "backends.processes": "", "devices.transfers": "",
    "devices": "from .device import Device, DeviceError, DLPackError, OutOfMemoryError",
    "devices.registry":
        "from bls_notebook.backends.processes.worker_gpus import backend_of, device_of, gpus, why_no_gpu",
    "devices.allocation_log": "recording = place = Origin = None\ndef moved(*_): pass",
}  # fmt: skip

# The process reads its sources from the first file in `sys.argv`, as one line of JSON, and imports them. A worker has
# two sockets, and a pipe that the end of the kernel closes; a fork server has one socket.
BOOT = """
import importlib.abc, importlib.util, json, socket, sys
files = list(map(int, sys.argv[1:]))
end = socket.socket(fileno=files[0])
length = int.from_bytes(end.recv(8, socket.MSG_WAITALL), "little")
boot = json.loads(end.recv(length, socket.MSG_WAITALL).decode())
end.detach()
sys.path[:] = boot["path"] or sys.path
sys.argv[:] = [""]
class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in boot["sources"]:
            return importlib.util.spec_from_loader(name, self, is_package=name in boot["packages"])
    def create_module(self, spec): return None
    def exec_module(self, module):
        module.__file__ = "<bls_notebook>/" + module.__name__
        exec(compile(boot["sources"][module.__name__], module.__file__, "exec"), vars(module))
finder = Sources()
sys.meta_path.insert(0, finder)
from bls_notebook.backends.processes.worker import main
from bls_notebook.backends.processes.worker_forks import forked
sys.meta_path.remove(finder)
for name in [name for name in sys.modules if name.partition(".")[0] == "bls_notebook"]: del sys.modules[name]
main(*(files if files[1:] else forked(*files)))
"""


@cache
def sources() -> dict[str, str]:
    """Return the texts that a worker runs, by the names of their modules."""
    texts = {f"bls_notebook.{name}".rstrip("."): text for name, text in _STAND_INS.items()}
    return texts | {name: text_of(name) for name in (f"bls_notebook.{name}" for name in _MODULES)}


def text_of(module: str) -> str:
    """Return the source text of a module of this package."""
    file = _PACKAGE.parent.joinpath(*module.split("."))
    return (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")


def boot_message(path: list[str]) -> bytes:
    """Return the first message to a worker: its sources, and its `sys.path` (empty: unchanged)."""
    texts = sources()
    packages = [name for name in texts if any(other.startswith(f"{name}.") for other in texts)]
    text = json.dumps({"path": path, "sources": texts, "packages": packages}).encode()
    return len(text).to_bytes(8, "little") + text
