"""Models that are tried in processes of their own: the report is whole and as true as from the kernel."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from tests.trying.conftest import DOUBLES, PYTHON, in_notebook, put, time_limits_pass_when_asked
from tests.trying.test_trial import OWN, REASONS, project

TRANSFORMERS = """
class PreTrainedTokenizerBase:
    chat_template = ""
    def __init__(self, **options):
        pass
    def __len__(self):
        return 1000
    def __call__(self, text):
        return list(text.encode())
    encode = tokenize = decode = batch_decode = apply_chat_template = __call__
    @classmethod
    def from_pretrained(cls, name):
        if name != "there":
            raise OSError("We couldn't connect to the hub")
        return cls()
class PreTrainedTokenizerFast(PreTrainedTokenizerBase): pass
class AutoTokenizer(PreTrainedTokenizerBase):
    from_pretrained = classmethod(vars(PreTrainedTokenizerBase)["from_pretrained"].__func__)
"""
TOKENIZERS = """
from types import SimpleNamespace
class ByteLevel:
    alphabet = staticmethod(lambda: "ab")
    def __init__(self, **options): pass
Tokenizer = lambda model: SimpleNamespace(model=model)
models = SimpleNamespace(BPE=lambda vocabulary, merges: vocabulary)
pre_tokenizers = decoders = SimpleNamespace(ByteLevel=ByteLevel)
"""
ONES = {"IN": np.ones(3, np.float32)}
SEGFAULT = "import ctypes; ctypes.string_at(0)"
TOO_LONG = f"import os, signal; os.kill({os.getpid()}, signal.SIGUSR1)"  # the model's time limit passes
EXECUTES = DOUBLES.replace("arrays = ", "exec({!r}); arrays = ")

HOSTILE = {
    "segfault": (f"{SEGFAULT}\n{DOUBLES}", "ended by SIGSEGV (Segmentation fault) in model 'segfault', "),
    "exits": (f"import os, sys; print('no', file=sys.stderr); os._exit(7)\n{DOUBLES}", "status 7; it wrote: no"),
    "aborts": (f"{DOUBLES}    def initialize(self, args):\n        __import__('os').abort()\n", "SIGABRT (Aborted) in"),
    "kills": (f"import os; os.killpg(0, 9)\n{DOUBLES}", "its process was ended by SIGKILL"),
    "leaves": (f"import sys; sys.exit(3)\n{DOUBLES}", "SystemExit: 3"),
    "closes": (f"import os, sys; sys.stdout.close(); sys.stderr.close(); os.close(1); os.close(2)\n{DOUBLES}", ""),
    "changes": (
        "import os, sys, threading; sys.setrecursionlimit(4321); os.environ['CHANGED'] = '1'; os.chdir('/')\n"
        "sys.path.insert(0, '/changed'); sys.modules['changed'] = sys; threading.setprofile(print)\n"
        f"import builtins; builtins.open = None; os.umask(0)\n{DOUBLES}", "",
    ),
    "loops": (f"{TOO_LONG}\nwhile True: pass\n{DOUBLES}", "did not load within 60 s: it was in model 'loops', "),
    "waits": (f"{TOO_LONG}; __import__('threading').Event().wait()\n{DOUBLES}", "line 1: import os, signal; os"),
    "later": (EXECUTES.format(SEGFAULT), ""),
    "finalizes": (f"{DOUBLES}    def finalize(self):\n        {SEGFAULT}\n", ""),
    "plain": (DOUBLES, ""),
}  # fmt: skip


@pytest.mark.slow
def test_hostile_models_cost_themselves_and_never_the_report(
    trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time_limits_pass_when_asked(monkeypatch)
    monkeypatch.setattr(threading.main_thread(), "passes", None, raising=False)
    handler = signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=threading.main_thread().passes).start())  # type: ignore[attr-defined]
    for name, (source, _) in HOSTILE.items():
        put(tmp_path, name, PYTHON, {"1/model.py": source})
    before = sys.getrecursionlimit(), dict(os.environ), os.getcwd(), list(sys.path), open, sys.stdout.closed
    try:
        repository, rows = trying(in_kernel=False)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    after = sys.getrecursionlimit(), dict(os.environ), os.getcwd(), list(sys.path), open, sys.stdout.closed
    assert (before, "changed" in sys.modules) == (after, False)
    whys = {name: rows[name].why for name in HOSTILE}
    assert {name: why for name, why in whys.items() if HOSTILE[name][1] not in why} == {}
    assert [name for name in HOSTILE if (rows[name].kind == "stub") != bool(HOSTILE[name][1])] == []
    assert "SIGSEGV" in rows["later"].problem
    assert repository.infer("plain", ONES)["OUT"].as_numpy().tolist() == [2, 2, 2]
    assert repository.infer("segfault", ONES).stubs == ("segfault",)
    assert all(name in render(rows[""]).text for name in HOSTILE)
    repository.unload("finalizes")


@pytest.mark.slow
def test_reasons_from_processes_are_those_from_the_kernel(trying: Any, tmp_path: Path) -> None:
    models = project(tmp_path / "project")
    for number, (line, _, _) in enumerate(REASONS):
        put(models, f"m{number}", PYTHON, {"1/model.py": f"{line}\n{DOUBLES}", **OWN})
    _, rows = trying(tmp_path / "project", in_kernel=False)
    for number, (line, why, remedy) in enumerate(REASONS):
        row = rows[f"m{number}"]
        if "NVIDIA" not in why:
            assert (row.kind, why in row.why) == ("stub", True), f"{line}: {row.why}"
            assert remedy.replace("broken", row.name) in in_notebook(row.remedy), line


def test_models_stay_in_their_processes_until_they_are_loaded_elsewhere(trying: Any, tmp_path: Path) -> None:
    tells = DOUBLES.replace("* 2", "* (os.getpid() == {})").replace("import numpy", "import os\nimport numpy")
    folder = put(tmp_path, "m", PYTHON, {"1/model.py": tells.format(os.getpid())})
    repository, _ = trying(in_kernel=False)

    def in_kernel() -> bool:
        return bool(repository.infer("m", ONES)["OUT"].as_numpy().all())

    assert not in_kernel()
    (folder / "1" / "model.py").write_text(tells.format(os.getpid()) + "# changed")
    repository.reload("m")
    assert not in_kernel()
    repository.load("m", isolation="kernel")
    assert in_kernel()
    repository.reload("m")
    assert in_kernel()
    repository.define("m", tells.format(os.getpid()))
    assert (in_kernel(), repository.isolation) == (True, "kernel")


def test_a_tokenizer_of_bytes_in_a_process_is_named_among_the_stubs(
    trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source in {"transformers": TRANSFORMERS, "tokenizers": TOKENIZERS}.items():
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in "gone", "there":
        own = DOUBLES.replace("arrays = ", "self.tokenizer('text'); arrays = ")
        own += f"""
    def initialize(self, args):
        from transformers import AutoTokenizer
        self.tokenizer = AutoTokenizer.from_pretrained("{name}")
"""
        put(tmp_path / "models", name, PYTHON, {"1/model.py": own})
    repository, rows = trying(tmp_path / "models", in_kernel=False)
    assert rows["gone"].why == "a tokenizer of single bytes replaces gone, which is unavailable"
    for _ in range(2):  # also after the trial
        assert repository.infer("gone", ONES).stubs == ("the tokenizer gone",)
        repository.reload("gone")
    assert (rows["there"].why, repository.infer("there", ONES).stubs) == ("", ())


def test_simulated_gpus_are_only_in_the_kernel(trying: Any, tmp_path: Path) -> None:
    if bls.simulate_gpus(0) or bls.list_devices().devices[1:]:
        pytest.skip("there is a GPU")
    put(tmp_path, "on_gpu", f"{PYTHON} instance_group [{{ kind: KIND_GPU }}]", {"1/model.py": DOUBLES})
    fails = f"{DOUBLES}    def initialize(self, args):\n        raise RuntimeError('CUDA error')\n"
    needs = fails.replace("RuntimeError", "type('E', (Exception,), {'__module__': 'pynvml'})")
    put(tmp_path, "fails", PYTHON, {"1/model.py": fails})
    put(tmp_path, "needs", PYTHON, {"1/model.py": needs})
    _, rows = trying(in_kernel=False)
    assert {name: rows[name].kind for name in ("on_gpu", "fails", "needs")} == {
        "on_gpu": "real", "fails": "stub", "needs": "stub",
    }  # fmt: skip
    assert "its instances are on the CPU, because GPUs are simulated only with" in rows["on_gpu"].why
    assert "probably needs a GPU (there is none here): E: CUDA error" in rows["needs"].why
    assert "--in-kernel`, which simulates a GPU; on a machine with one" in in_notebook(rows["needs"].remedy)
    assert "fix it" in in_notebook(rows["fails"].remedy)


def test_a_stub_asks_the_model_for_its_configuration_in_a_process(trying: Any, tmp_path: Path) -> None:
    source = f"""
import os
assert os.getpid() != {os.getpid()}
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}})
        config.add_output({{"name": "OUT", "data_type": "TYPE_INT64", "dims": [-1, 2]}})
        return config

    def initialize(self, args):
        os._exit(1)
"""
    put(tmp_path, "completes", None, {"1/model.py": source})
    repository, rows = trying(in_kernel=False)
    assert rows["completes"].why == "its process ended with exit status 1"
    assert repository.infer("completes", ONES)["OUT"].as_numpy().shape == (3, 2)


@pytest.mark.parametrize("in_kernel", [True, False])
def test_a_trial_writes_nothing_to_the_project(trying: Any, tmp_path: Path, in_kernel: bool) -> None:
    """As its help says: no bytecode beside a model, its modules, and modules elsewhere in the project."""
    files = {
        "1/helper.py": "def double(x): return 2 * x",
        "1/model.py": f"import sys; sys.path.append({str(tmp_path / 'shared')!r})\nimport helper, parts.one\n{DOUBLES}",
    }
    put(tmp_path / "models", "m", PYTHON, files)
    (tmp_path / "shared" / "parts").mkdir(parents=True)
    (tmp_path / "shared" / "parts" / "one.py").write_text("")
    before = sorted(tmp_path.rglob("*"))
    _, rows = trying(tmp_path / "models", in_kernel=in_kernel)
    assert (rows["m"].kind, sorted(tmp_path.rglob("*"))) == ("real", before)
