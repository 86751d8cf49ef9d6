"""A process dies, at any moment and of any cause: every caller is answered, and the model serves again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from tests.backends.processes.models import DECOUPLED, HEAD, IDENTITY, IO, WAITS, apart, children, define, x
from tests.engine import gates
from tests.engine.harness import LIMIT, Caller, message, until, value

__all__ = ["apart"]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

CAUSES = {
    "segfault": "was ended by SIGSEGV (Segmentation fault). Its last words:\n",
    "abort": "was ended by SIGABRT (Aborted). Its last words:\n",
    "exit": "ended with exit status 7. Its last words:\nthese are my last words",
    "kill": "was ended by SIGKILL (Killed): by Linux for lack of memory, or by another process. Its last words:\n",
}
CRASHES = """
class TritonPythonModel:
    def execute(self, requests):
        if number(requests[0]) < 0:
            crash("{how}")
        return [answer(number(r), parameters={{"pid": os.getpid()}}) for r in requests]
"""


def pid(repo: bls.ModelRepository, name: str = "m") -> int:
    response = repo.infer(name, x(0))
    assert response.error is None, response.error
    return int(response.parameters()["pid"])


@pytest.mark.parametrize("how", CAUSES)
def test_a_crash_in_execute_is_an_error_response(apart: bls.ModelRepository, how: str) -> None:
    define(apart, "m", CRASHES.format(how=how))
    first = pid(apart)
    text = message(apart.infer("m", x(-1)))
    assert text.startswith(
        "Failed to process the request(s) for model 'm_0', message: Stub process 'm_0' is not healthy"
    )
    assert CAUSES[how] in text
    assert "these are my last words" in text, text
    if how == "segfault":
        assert "in execute" in text
    assert pid(apart) != first
    assert "each in a process" not in str(record := apart.model("m"))
    assert "in a process of its own" in str(record)
    assert apart.ready("m")


def test_a_crash_has_a_traceback_and_its_words_stand_only_there(
    apart: bls.ModelRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    define(apart, "m", CRASHES.format(how="abort"))
    error = apart.infer("m", x(-1)).record.error
    assert error is not None
    assert [(frame.model, frame.function) for frame in error.frames][-2:] == [("m", "execute"), ("m", "crash")]
    assert "Fatal Python error: Aborted" in error.message
    assert "Fatal Python error" not in capsys.readouterr().err


@pytest.mark.parametrize("how", CAUSES)
def test_a_crash_during_the_load_fails_the_load(apart: bls.ModelRepository, how: str) -> None:
    define(apart, "m", IDENTITY)
    first = pid(apart)
    initializes = f"    def initialize(self, arguments):\n        crash('{how}')\n"
    for source in (f"crash('{how}')\n{IDENTITY}", IDENTITY.replace("    def execute", initializes + "    def execute")):
        with pytest.raises(bls.ModelLoadError) as raised:
            define(apart, "m", source)
        assert CAUSES[how].partition(".")[0] in str(raised.value)
    assert pid(apart) == first


def test_a_crash_while_requests_wait_answers_them_all(apart: bls.ModelRepository) -> None:
    source = CRASHES.format(how="kill").replace(
        "if number(requests[0]) < 0:", "time.sleep(0.05)\n        if number(requests[0]) < 0:"
    )
    define(apart, "m", source)
    callers = [Caller(apart.infer, "m", x(i)) for i in (1, -1, 2, -1, 3, -1, 4)]
    responses = [caller.result() for caller in callers]
    assert [r.error is None for r in responses] == [True, False, True, False, True, False, True]


def test_a_crash_while_a_callee_runs(apart: bls.ModelRepository) -> None:
    apart.define("callee", WAITS.replace("from tests", HEAD + "from tests", 1), IO)
    source = """
class TritonPythonModel:
    def execute(self, requests):
        if number(requests[0]) == 0:
            return [answer(0, parameters={"pid": os.getpid()}) for r in requests]
        return [answer(value(ask("callee", 1).exec())) for r in requests]
"""
    define(apart, "m", source)
    first = pid(apart)
    caller = Caller(apart.infer, "m", x(1))
    gates.pass_gate("callee of a process runs")
    os.kill(first, signal.SIGKILL)
    gates.open_gate("callee of a process may end")
    assert "SIGKILL" in message(caller.result())
    assert pid(apart) != first


def test_a_crash_while_an_async_model_awaits_several_requests(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    async def execute(self, requests):
        for r in requests:
            if number(r) < 0:
                crash("kill")
            sender = r.get_response_sender()
            sender.send(answer(number(r), parameters={"pid": os.getpid()}))
            if number(r):
                await asyncio.sleep(60)
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
    define(apart, "m", source, DECOUPLED)
    streams = [apart.stream("m", x(i)) for i in (1, 2)]
    first = [next(stream) for stream in streams]
    assert [value(response) for response in first] == [1, 2]
    (error,) = list(apart.stream("m", x(-1)))
    assert "SIGKILL" in message(error)
    for stream in streams:
        assert "SIGKILL" in message(next(stream))
    (again,) = list(apart.stream("m", x(0)))
    assert again.parameters()["pid"] != first[0].parameters()["pid"]


def test_a_crash_while_a_stream_of_a_thread_is_open(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            threading.Thread(target=self.send, args=(r.get_response_sender(), number(r))).start()

    def send(self, sender, number):
        sender.send(answer(number))
        if number:
            crash("exit")
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
    define(apart, "m", source, DECOUPLED)
    one, error = apart.stream("m", x(1))
    assert value(one) == 1
    assert error.error is not None
    until(lambda: apart.ready("m"), "the restart")
    assert value(next(iter(apart.stream("m", x(0))))) == 0


def test_a_crash_in_finalize_is_logged_and_ends_the_unload(
    apart: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    define(apart, "m", IDENTITY + "\n    def finalize(self):\n        crash('segfault')\n")
    apart.unload("m")
    until(
        lambda: any("finalize of m_0 raised" in r.getMessage() and "SIGSEGV" in r.getMessage() for r in caplog.records)
    )


def test_an_idle_process_that_is_killed_is_started_again(apart: bls.ModelRepository) -> None:
    define(apart, "m", IDENTITY)
    first = pid(apart)
    os.kill(first, signal.SIGKILL)

    def serves_again() -> bool:  # a request that comes before the kernel notices the death gets an error
        response = apart.infer("m", x(0))
        return response.error is None and response.parameters()["pid"] != first

    until(serves_again, "the restart")
    assert apart.ready("m")


def test_a_model_that_cannot_start_again_answers_with_the_reason(apart: bls.ModelRepository, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = f"""
class TritonPythonModel:
    def initialize(self, arguments):
        if os.path.exists({str(mark)!r}):
            raise ValueError("not again")
"""
    define(apart, "m", source + CRASHES.format(how="exit").partition("TritonPythonModel:\n")[2])
    mark.touch()
    assert "exit status 7" in message(apart.infer("m", x(-1)))
    assert "not again" in message(apart.infer("m", x(0)))
    assert not apart.ready("m")
    mark.unlink()
    assert pid(apart)
    assert apart.ready("m")


def test_sys_exit_is_an_error_of_the_model_as_in_the_kernel(apart: bls.ModelRepository) -> None:
    texts = []
    for isolation in ("process", "kernel"):
        define(apart, "m", IDENTITY.replace("return [", "sys.exit(3)\n        return ["), isolation=isolation)
        texts.append(message(apart.infer("m", x())))
    assert texts[0] == texts[1]


def test_processes_that_a_model_starts_end_with_it(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        import subprocess
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return [answer(self.child.pid) for r in requests]
"""
    define(apart, "m", source)
    child = value(apart.infer("m", x()))
    apart.unload("m")
    until(
        lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text(),
        "the child ends",
    )


HOLDS_GIL = """
class TritonPythonModel:
    def execute(self, requests):
        import ctypes
        pb.Logger.log_error(f"pid {os.getpid()}")
        ctypes.PyDLL(None).sleep(600)
"""


def test_a_worker_ends_with_the_kernel_also_if_native_code_has_the_gil() -> None:
    program = f"""
import logging, os, signal
import bls_notebook as bls
class Killer(logging.Handler):
    def emit(self, record):
        if "pid " in record.getMessage():
            print(record.getMessage().rpartition("pid ")[2].split()[0], flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
logging.getLogger().addHandler(Killer())
logging.getLogger("bls_notebook").addHandler(Killer())
repo = bls.ModelRepository()
repo.define("m", {HEAD + HOLDS_GIL!r}, {IO!r}, isolation="process")
repo.infer("m", {{"X": [1]}})
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=LIMIT, check=False)
    worker = int(done.stdout)
    until(lambda: not Path(f"/proc/{worker}").exists(), "the end of the worker")


@pytest.mark.parametrize("end", ["repo.close()", "del repo", ""])
def test_a_program_ends_whose_models_are_processes(end: str) -> None:
    program = f"""
import bls_notebook as bls
repo = bls.ModelRepository()
repo.define("m", {HEAD + IDENTITY!r}, {IO!r}, isolation="process")
print(repo.infer("m", {{"X": [1]}}).parameters()["pid"])
{end}
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    worker = int(done.stdout)
    until(lambda: not Path(f"/proc/{worker}").exists(), "the end of the worker")


@pytest.mark.slow
def test_nothing_is_left_of_many_crashes(apart: bls.ModelRepository) -> None:
    before = children()
    models = {how: CRASHES.format(how=how) for how in CAUSES}
    for how, source in models.items():
        define(apart, how, source)
        assert value(apart.infer(how, x(1))) == 1
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        for how in models:
            assert apart.infer(how, x(-1)).error is not None
            assert value(apart.infer(how, x(1))) == 1
    until(lambda: len(children() - before) <= len(models) + 1, "a process is left")  # and a fork server
    until(lambda: len(os.listdir("/proc/self/fd")) <= files + 2, "a file is left")


@pytest.mark.parametrize(
    "body",
    [
        "__class__ = property(lambda self: sys.exit(4))",
        "__str__ = lambda self: sys.exit(3)",
        "__getattribute__ = None",
        "__traceback__ = 5",
    ],
)
def test_an_exception_whose_class_raises_is_an_error_response(apart: bls.ModelRepository, body: str) -> None:
    raises = f"""
class Hostile(Exception, metaclass=type("Meta", (type,), {{"__name__": property(lambda self: 1 / 0)}})):
    {body}

class TritonPythonModel:
    KIND def execute(self, requests):
        raise Hostile("why")
"""
    others = children()
    for kind in ("", "async"):
        define(apart, "m", raises.replace("KIND", kind))
        until(lambda: len(children() - others) == 2, "the end of the replaced process")  # beside a fork server
        pids = children()
        assert "Failed to process the request(s) for model 'm_0'" in message(apart.infer("m", x()))
        assert not pids - children()  # no process ended
