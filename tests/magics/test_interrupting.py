"""Ctrl-C: at once, one line, and everything is usable afterwards."""

from __future__ import annotations

import builtins
import signal
import sys
import threading

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.engine.harness import until
from tests.profiling.simulated import Model, simulate_times
from tests.repository.models import saying, with_method

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a signal for one thread needs POSIX")


@pytest.fixture(autouse=True)
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give cells and models a `ctrl_c()`: as if Ctrl-C were pressed at that moment."""
    main = threading.main_thread().ident
    assert main is not None
    monkeypatch.setattr(builtins, "ctrl_c", lambda: signal.pthread_kill(main, signal.SIGINT), raising=False)


THIRD = "%%tritonmodel third --output OUT STRING [1]\n"
SIGNAL = saying("asked", "asked = 0", "global asked\nasked += 1\nif asked == 3: ctrl_c()")


def test_many_requests(cells) -> None:
    cells(THIRD + SIGNAL)
    failed = cells("%bls third -n 10")
    assert not failed.success
    assert "2 of 10 requests were answered" in failed.text
    assert not failed.stdout
    assert [r["OUT"].as_numpy()[0] for r in cells("_interrupted").value] == [b"1", b"2"]
    assert cells("%bls third").success


def test_loading(cells) -> None:
    cells.model()
    failed = cells("%%tritonmodel times\nctrl_c()")
    assert not failed.success
    assert "interrupted while loading 'times'" in failed.text
    assert "stays in service" in failed.text
    assert cells("%bls times IN=[1]").success


@pytest.mark.parametrize("how", ["", "--async"])
def test_one_request(cells, how: str) -> None:
    cells(THIRD + SIGNAL.replace("asked == 3", "asked == 1"))
    failed = cells(f"%bls third {how}")
    assert not failed.success
    assert "interrupted" in failed.text
    assert cells("%bls third").value.error is None


def test_a_body(cells) -> None:
    cells.model()
    failed = cells("%%bls\nfor i in range(3):\n    ctrl_c()")
    assert isinstance(failed.error, KeyboardInterrupt)
    assert "ctrl_c()" in failed.stdout
    assert "bls_notebook" not in failed.stdout
    assert bls.current_repository().infer("times", {"IN": [1]}).error is None
    failed = cells("%%bls\nimport asyncio\nctrl_c()\nawait asyncio.Event().wait()")
    assert isinstance(failed.error, KeyboardInterrupt)
    assert cells("%%bls\nimport asyncio\nawait asyncio.sleep(0)\n5").value == 5


SECOND_INSTANCE = with_method(
    saying("self.asked", "import time", "self.asked += 1\nif self.second: ctrl_c()\ntime.sleep(self.seconds)"),
    "initialize(self, args)", """
alone = '"count":1' in args["model_config"].replace(" ", "")
self.second, self.seconds, self.asked = args["model_instance_name"].endswith("_1"), 0.001 if alone else 0.2, 0
""",
)  # fmt: skip


@pytest.mark.parametrize("how", ["--verify", "--instances 2"])
def test_a_comparison_that_has_changed_the_instances(cells, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_times(monkeypatch, {"counts": Model([10_000_000])})  # more instances help, on any machine
    cells("%%tritonmodel counts --output OUT STRING [1]\n" + SECOND_INSTANCE)
    cells("%bls counts")
    model = host_of(bls.current_repository()).find("counts")
    interval = sys.getswitchinterval()
    failed = cells(f"found = %blsprofile counts -n 4 --repeat 1 {how}")
    assert not failed.success
    assert "interrupted" in failed.text
    assert "found" not in cells.shell.user_ns
    # The interrupted run puts both back when it ends.
    until(lambda: host_of(bls.current_repository()).find("counts") is model, "another model is in service")
    until(lambda: sys.getswitchinterval() == interval, "threads still take shorter turns with the GIL")
    assert int(cells("%bls counts").value["OUT"].as_numpy()[0]) > 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
