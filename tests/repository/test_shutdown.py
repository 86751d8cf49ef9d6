"""Ends end: closing, the end of the program, forked children, and what models raise on the way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine import model_code
from tests.engine import gates
from tests.engine.harness import Caller, ctrl_c_once, infer, ints, message, queued, until
from tests.engine.sources import DOUBLE, model, pbtxt
from tests.waiting import LIMIT

NEVER = model("""
def execute(self, requests):
    return [answer(1)]

def finalize(self):
    gates.open_gate("finalizing")
    while not gates.over[0]:
        gates.gate("never").wait(0.01)
""")


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    repository = bls.ModelRepository()
    try:
        yield repository
    finally:
        gates.open_all()
        repository.close(1.0)


def opened(name: str) -> Any:
    return gates.gate(name).is_set


def test_requests_in_flight_when_close_gives_up_get_an_error(repo: bls.ModelRepository) -> None:
    repo.define("sleeps", model("""
async def execute(self, requests):
    gates.count("begun")
    await asyncio.Event().wait()

def finalize(self):
    gates.open_gate("finalized")
"""), pbtxt())  # fmt: skip
    repo.define("keeps", model('''
def execute(self, requests):
    self.senders = [r.get_response_sender() for r in requests]
    gates.count("begun")
'''), pbtxt(decoupled=True))  # fmt: skip
    repo.define("calls", model('''
def execute(self, requests):
    gates.count("begun")
    return [answer(value_of(ask("sleeps").exec()))]
'''), pbtxt())  # fmt: skip
    callers = [
        Caller(repo.infer, "calls", ints()),
        Caller(lambda: next(iter(repo.stream("keeps", ints())))),
        Caller(lambda: asyncio.run(repo.infer_async("sleeps", ints()))),  # one of them waits in the queue
    ]
    until(lambda: gates.counts["begun"] == 3 and queued(repo, "sleeps") == 1)
    repo.close(0.05)
    for caller in callers:
        assert "the repository was closed before the request was answered" in message(caller.result())
    gates.pass_gate("finalized")  # its coroutine was stopped


def test_a_load_that_ends_after_close_puts_nothing_in_service(repo: bls.ModelRepository) -> None:
    source = model("""
def initialize(self, args):
    gates.open_gate("initializing")
    gates.pass_gate("go on")

def execute(self, requests):
    return [answer(1)]

def finalize(self):
    gates.open_gate("finalized")
""")
    loading = Caller(repo.define, "a", source, pbtxt())
    gates.pass_gate("initializing")
    repo.close(0.0)
    gates.open_gate("go on")
    with pytest.raises(bls.RepositoryClosedError):
        loading.result()
    gates.pass_gate("finalized")
    assert "0 loaded" in repr(repo)


@pytest.mark.parametrize("interrupted", [False, True])
def test_close_does_not_wait_for_a_finalize_that_never_ends(repo: bls.ModelRepository, interrupted: bool) -> None:
    for seconds in (-1, float("nan"), "1"):
        with pytest.raises(bls.BLSError, match="close: seconds"):
            repo.close(seconds)  # type: ignore[arg-type]
    assert not repo.closed
    repo.define("a", NEVER, pbtxt())
    if interrupted:
        with ctrl_c_once(opened("finalizing")):
            repo.close(60.0)
    else:
        repo.close(0.05)
        gates.pass_gate("finalizing")  # its thread may start later
    assert (opened("finalizing")(), repo.closed) == (True, True)


@pytest.mark.parametrize("verb", ["clear", "close"])
def test_a_model_cannot_end_its_own_repository(repo: bls.ModelRepository, verb: str) -> None:
    gates.shared["repo"] = repo
    source = model(f"""
def execute(self, requests):
    gates.shared["repo"].{verb}()
""")
    repo.define("a", source, pbtxt())
    assert f"{verb}: model 'a' cannot {verb} the repository that it runs in" in message(repo.infer("a", ints()))
    assert repo.ready("a")
    getattr(repo, verb)()
    assert not repo.ready("a")


ENDS = ["SystemExit(3)", "GeneratorExit()", "asyncio.CancelledError()", "KeyboardInterrupt()"]


@pytest.mark.parametrize("error", ENDS)
def test_initialize_and_finalize_end_nothing(
    repo: bls.ModelRepository, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = model(f"""
def initialize(self, args):
    if args["model_instance_name"].endswith("_1"):
        raise {error}

def execute(self, requests):
    return [answer(1)]

def finalize(self):
    gates.count("finalized")
    raise {error}
""")
    with pytest.raises(bls.ModelLoadError, match=error.partition("(")[0].rpartition(".")[2]):
        repo.define("a", source, pbtxt(2))
    assert gates.counts["finalized"] == 1
    repo.define("a", source, pbtxt(1))
    assert infer(repo, "a") == 1
    repo.unload("a")
    assert gates.counts["finalized"] == 2
    assert "finalize of a_0" in caplog.text


WAITS = model("""
def initialize(self, args):
    if gates.shared.get("initialize"):
        gates.open_gate("initializing")
        self.wait()

def execute(self, requests):
    return [answer(1)]

def finalize(self):
    gates.count("finalized")
    if gates.counts["finalized"] == 1:
        gates.open_gate("finalizing")
        self.wait()

def wait(self):
    while not gates.gate("never").wait(0.01) and not gates.over[0]:
        pass
""")


@pytest.mark.parametrize("verb", ["unload", "reload", "define", "clear"])
def test_ctrl_c_while_a_model_is_finalized(repo: bls.ModelRepository, verb: str) -> None:
    """It reaches the user; what was asked for has happened, and the other instance is finalized."""
    repo.define("a", WAITS, pbtxt(2))
    arguments = {"unload": ("a",), "reload": ("a",), "define": ("a", DOUBLE, pbtxt()), "clear": ()}[verb]
    with ctrl_c_once(opened("finalizing")):
        getattr(repo, verb)(*arguments)
    until(lambda: gates.counts["finalized"] == 2)
    if verb == "define":
        assert infer(repo, "a", 4) == 8
        repo.reload("a")  # its source is there
    assert repo.ready("a") == (verb in ("reload", "define"))
    repo.define("a", DOUBLE, pbtxt())
    assert infer(repo, "a", 2) == 4


@pytest.mark.parametrize("verb", ["reload", "define"])
def test_ctrl_c_while_a_model_is_initialized(repo: bls.ModelRepository, verb: str) -> None:
    repo.define("a", WAITS, pbtxt())
    gates.shared["initialize"] = True
    arguments = {"reload": ("a",), "define": ("a", WAITS, pbtxt())}[verb]
    with ctrl_c_once(opened("initializing")):
        getattr(repo, verb)(*arguments)
    assert infer(repo, "a") == 1  # the one that served still serves
    assert gates.counts["finalized"] == 0


def test_ctrl_c_while_somebody_else_loads_the_same_model(repo: bls.ModelRepository) -> None:
    repo.define("a", WAITS, pbtxt())
    gates.shared["initialize"] = True
    gates.counts["finalized"] = 1  # they do not wait
    other = Caller(repo.reload, "a")
    gates.pass_gate("initializing")
    turn = repo._service.lock_of("a")
    with ctrl_c_once(lambda: turn._waiting):
        repo.define("a", DOUBLE, pbtxt())
    gates.shared["initialize"] = False
    gates.open_gate("never")
    other.result()
    repo.define("a", DOUBLE, pbtxt())
    assert infer(repo, "a", 2) == 4


HEAD = """
import atexit, os, sys, threading
import bls_notebook as bls
from bls_notebook.repository import shutdown as ending
from tests.engine import gates
from tests.engine.harness import ints
from tests.engine.sources import DOUBLE, model, pbtxt
"""


def run(program: str, code: int = 0) -> list[str]:
    """The lines that a program printed; it has to end with this exit code."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + program], cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_program_ends_with_its_own_exit_code() -> None:
    """Whatever models started and whatever they do at the end; threads and handlers of its own come first."""
    lines = run('''
ending.EXIT_SECONDS = ending.LAST_SECONDS = 0.3
ending.PATIENCE_SECONDS = 0.0
saying = """
    def finalize(self):
        print(self.__class__.__name__, NAME, flush=True)
"""
repo, other = bls.ModelRepository(), bls.ModelRepository()

@atexit.register
def handler():
    print("handler", repo.infer("threads", ints(1)).error, flush=True)

repo.define("threads", model("""
def initialize(self, args):
    from concurrent.futures import ThreadPoolExecutor
    self.end = threading.Event()
    self.thread = threading.Thread(target=self.end.wait)
    self.thread.start()
    self.pool = ThreadPoolExecutor(1)
    self.pool.submit(self.end.wait)

def execute(self, requests):
    return [answer(1) for _ in requests]

def finalize(self):
    self.end.set()
    self.thread.join()
    self.pool.shutdown()
    print("threads ended", flush=True)
"""), pbtxt())
never = model("""
def execute(self, requests):
    pass

def finalize(self):
    threading.Event().wait()
""")
for number in range(3):
    other.define(f"never{number}", never, pbtxt())
asleep = model("""
async def execute(self, requests):
    gates.open_gate("asleep")
    await asyncio.Event().wait()
""")
other.define("asleep", asleep, pbtxt())
main = threading.current_thread()

def work():
    main.join(0.5)
    print("thread", repo.infer("threads", ints(1)).error, flush=True)

def wait():
    print(other.infer("asleep", ints(1)).error.message(), flush=True)

threading.Thread(target=work).start()
threading.Thread(target=wait).start()
gates.pass_gate("asleep")
sys.exit(7)
''', 7)  # fmt: skip
    assert (lines[0], lines[2], "threads ended" in lines[3:]) == ("thread None", "handler None", True)
    assert "the program has ended before the request was answered" in lines[1]
    assert (sum("before model 'never" in line for line in lines), len(lines)) == (3, 7)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_its_parent_alone() -> None:
    lines = run('''
import asyncio, io
repo = bls.ModelRepository()
repo.define("a", DOUBLE, pbtxt())
asyncio.run(repo.infer_async("a", ints(1)))
folder = repo._service.folder._root

def in_child(job):
    child = os.fork()
    if not child:
        try:
            print(job(), flush=True)
        except bls.BLSError as error:
            print(type(error).__name__, "spawn" in str(error), len(str(error).splitlines()), flush=True)
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def anew():
    own = bls.current_repository()
    own.define("a", DOUBLE, pbtxt())
    sync, late = own.infer("a", ints(2)), asyncio.run(own.infer_async("a", ints(3)))
    return sync.as_numpy()["Y"][0], late.as_numpy()["Y"][0]

assert in_child(lambda: repo.infer("a", ints(1))) == 3
assert in_child(lambda: asyncio.run(repo.infer_async("a", ints(1)))) == 3
assert in_child(lambda: repo.define("b", DOUBLE, pbtxt())) == 3
assert in_child(lambda: (repo.close(), repr(repo))) == 3
assert in_child(anew) == 3
repo.define("forks", model("""
def execute(self, requests):
    import os
    child = os.fork()
    if not child:
        sys.exit(5)
    return [answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))]
"""), pbtxt())
print(repo.infer("forks", ints(1)).as_numpy()["Y"][0])
print(asyncio.run(repo.infer_async("forks", ints(1))).as_numpy()["Y"][0])
assert folder.is_dir()
repo.reload("a")
''')  # fmt: skip
    assert lines == [
        *["ForkedError True 1"] * 3, "(None, '<ModelRepository memory: 0 loaded>')",
        "(np.int32(4), np.int32(6))" if "np.int32(4)" in lines[4] else "(4, 6)", "5", "5",
    ]  # fmt: skip


def test_threads_that_models_start_do_not_keep_python(repo: bls.ModelRepository) -> None:
    repo.define("a", model("""
def execute(self, requests):
    thread = gates.shared["thread"] = threading.Thread(target=gates.gate("go on").wait)
    thread.start()
    return [answer(1)]
"""), pbtxt())  # fmt: skip
    infer(repo, "a")
    thread = gates.shared["thread"]
    assert (thread.daemon, thread in model_code.left()) == (True, True)
    gates.open_gate("go on")
    thread.join()
    assert thread not in model_code.left()
    own = threading.Thread(target=lambda: infer(repo, "a"))
    own.start()
    own.join()
    assert not own.daemon  # sends requests, and is nobody's but ours
