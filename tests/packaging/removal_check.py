"""Use the core of a copy of the package, try all that the removed capabilities would offer, and run tests.

python removal_check.py REMOVED,... TEST ...
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.capabilities import registry

removed = set(sys.argv[1].split(","))

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]
"""
DOUBLE = """
    def answer(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * request.inputs()[0].as_numpy())])
"""
CALLER = """
    def answer(self, request):
        return pb_utils.InferenceRequest(
            model_name="double", requested_output_names=["OUT"], inputs=request.inputs()).exec()
"""
COUNTER = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.float32([i]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def line(function: Any, *arguments: Any) -> str:
    """Return the one line of the error that a function raises."""
    try:
        function(*arguments)
    except (AttributeError, UsageError, bls.BLSError) as error:
        message = str(error)
    else:
        message = "no error"
    assert "\n" not in message, message
    return message


shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.run_line_magic("load_ext", "bls_notebook")
shell.user_ns.update(np=np)
shell.run_cell_magic("tritonmodel", "double", MODEL + DOUBLE)
shell.run_cell_magic("tritonmodel", "caller", MODEL + CALLER)
decoupled = "config.set_model_transaction_policy({'decoupled': True})\n        return config"
shell.run_cell_magic("tritonmodel", "counter", (MODEL + COUNTER).replace("return config", decoupled))
repo = bls.current_repository()
assert repo.infer("caller", {"IN": np.float32([1, 2])})["OUT"].as_numpy().tolist() == [2, 4]
counted = [r["OUT"].as_numpy()[0] for r in repo.stream("counter", {"IN": np.float32([0])}) if "OUT" in r]
assert counted == [0, 1, 2]
answer = shell.run_line_magic("bls", "caller IN=np.float32([3])")
data, _ = shell.display_formatter.format(answer)
assert "<div" in data["text/html"]
assert "caller" in data["text/plain"]
table, _ = shell.display_formatter.format(shell.run_line_magic("tritonrepo", "list"))
assert "3 models" in table["text/plain"], table
assert shell.run_line_magic("tritonrepo", "unload counter") is None
assert "usage" in shell.find_line_magic("tritonrepo").__doc__
assert shell.complete("", "%tritonrepo ", 12)[1]

offered = json.loads(Path(bls.__file__).with_name("names.json").read_text())
for capability in removed:
    kinds = offered[capability]
    calls: list[tuple[Any, ...]] = [(getattr, bls, name) for name in kinds.get("names", ())]
    for name in kinds.get("magics", ()):
        cell = name.startswith("%%")
        run = shell.run_cell_magic if cell else shell.run_line_magic
        calls.append((run, name.lstrip("%"), *(("", "1") if cell else ("",))))
    calls += [(shell.run_line_magic, "tritonrepo", name) for name in kinds.get("verbs", ())]
    calls += [(registry().load, k, name) for k in ("loaders", "backends", "hooks") for name in kinds.get(k, ())]
    for call in calls:
        assert f"capability {capability!r}" in line(*call), call
    assert all(main([name]) == 2 for name in kinds.get("commands", ()))
for kind in ("names", "types", "magics", "verbs", "commands", "loaders", "backends", "hooks", "completions"):
    for key in registry().keys(kind):
        registry().load(kind, key)  # nothing that is left needs a removed capability to be imported

assert Path(bls.__file__).is_relative_to(Path.cwd())
plugins = ["-p", "pytest_asyncio.plugin", "-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider"]
raise SystemExit(pytest.main(["-q", "-x", *plugins, "-m", "not hypothesis", *sys.argv[2:]]))
