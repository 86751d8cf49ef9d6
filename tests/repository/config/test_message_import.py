"""The message is loaded late, alone, and is the one that everybody else has."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bls_notebook.engine.errors import BLSError
from bls_notebook.repository.config import message, model_config_class, model_config_pb2, new_config

# tritonclient.grpc itself needs gRPC; the generated module is imported by its dotted name without it.
DOTTED = """
import importlib.util, sys, types
import tritonclient
package = types.ModuleType("tritonclient.grpc")
package.__path__ = [tritonclient.__path__[0] + "/grpc"]
sys.modules["tritonclient.grpc"] = package
import tritonclient.grpc.model_config_pb2 as dotted
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_message_is_loaded_with_the_first_configuration_and_without_grpc() -> None:
    run("""
import sys
from bls_notebook.repository.config import new_config
def loaded(*names):
    return [m for m in sys.modules if m.startswith(names)]
assert not loaded("google.protobuf", "tritonclient", "grpc")
new_config("m")
assert not loaded("tritonclient", "grpc")
""")


@pytest.mark.parametrize("dotted_first", [True, False])
def test_the_dotted_name_gives_the_same_class_in_either_order(dotted_first: bool) -> None:
    ours = "from bls_notebook.repository.config import model_config_pb2\nours = model_config_pb2()\n"
    check = (
        "assert dotted.ModelConfig is ours.ModelConfig\n"
        "message = dotted.ModelConfig(name='m', max_batch_size=3)\n"
        "assert ours.ModelConfig.FromString(message.SerializeToString()) == message\n"
    )
    run(DOTTED + ours + check if dotted_first else ours + DOTTED + check)


def test_all_threads_get_one_module_and_not_one_that_is_still_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "_module", None)
    half_done = type(sys)("tritonclient.grpc.model_config_pb2")
    monkeypatch.setitem(sys.modules, "tritonclient.grpc.model_config_pb2", half_done)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: id(model_config_pb2()), range(64)))) == 1
    assert new_config("m").name == "m"


@pytest.mark.parametrize("stand_in", [None, type(sys)("tritonclient")], ids=["none", "without a spec"])
def test_a_stand_in_for_tritonclient_counts_as_none(monkeypatch: pytest.MonkeyPatch, stand_in: object) -> None:
    monkeypatch.setattr(message, "_module", None)
    monkeypatch.setitem(sys.modules, "tritonclient", stand_in)
    monkeypatch.delitem(sys.modules, "tritonclient.grpc.model_config_pb2", raising=False)
    with pytest.raises(BLSError, match="pip install 'tritonclient") as caught:
        new_config()
    assert "\n" not in str(caught.value)


def test_a_protobuf_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generated = tmp_path / "model_config_pb2.py"
    generated.write_text("raise RuntimeError('gencode 9.0.0\\nruntime 1.0.0')")
    monkeypatch.setattr(message, "_module", None)
    monkeypatch.setattr(message, "_generated_file", lambda: generated)
    monkeypatch.delitem(sys.modules, "tritonclient.grpc.model_config_pb2", raising=False)
    with pytest.raises(BLSError, match=r"gencode 9.0.0 runtime 1.0.0.*--upgrade protobuf") as caught:
        new_config()
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert isinstance(new_config("m"), model_config_class())
