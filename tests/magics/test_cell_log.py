"""What models log appears under the cell that caused it, and never floods it."""

from __future__ import annotations

import logging

import pytest

from bls_notebook.engine import logs
from bls_notebook.magics.cell_log import MOST
from bls_notebook.records.messages import LogLine
from tests.engine import gates
from tests.engine.harness import until

CHATTY = """%%tritonmodel chatty {options}
import asyncio, threading
import triton_python_backend_utils as pb_utils
from tests.engine import gates

class TritonPythonModel:
    def initialize(self, args):
        global log
        log = pb_utils.Logger  # a server adds it only after it has imported model.py
        log.log_info("starting")

    {kind} execute(self, requests):
        {body}
        return [pb_utils.InferenceResponse() for _ in requests]

    def say(self, text):
        gates.pass_gate("say")
        log.log_warn(text)
        gates.open_gate("said")
"""


def chatty(body: str = 'log.log_info("hello")', kind: str = "def", options: str = "") -> str:
    return CHATTY.format(body=body, kind=kind, options=options)


LEVELS = 'log.log_verbose("v"); log.log_info("i"); log.log_warn("w"); log.log_error("e"); print("printed")'


def test_under_the_cell_that_loads_and_the_cell_that_calls(cells) -> None:
    assert cells(chatty(LEVELS)).stdout == "[info] chatty: starting\n"
    ran = cells("%bls chatty")
    assert ran.stdout == "[info] chatty: i\n[warning] chatty: w\n[error] chatty: e\nprinted\n"
    assert ran.stderr == ""  # Python's logging prints nothing beside it
    assert cells("1").stdout == ""
    shown = cells("%%bls\nimport triton_python_backend_utils as pb_utils\npb_utils.Logger.log_info('here')")
    assert shown.stdout == "[info] notebook: here\n"


LATE = """%%tritonmodel late {options}
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    {kind} execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(pb_utils.InferenceResponse(), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        raise ValueError("too late")
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("options", ["", "--decoupled"])
def test_an_error_after_the_answer_is_under_the_cell_that_asked(
    cells, capsys: pytest.CaptureFixture[str], kind: str, options: str
) -> None:
    cells(LATE.format(kind=kind, options=options))
    told: list[LogLine] = []
    logs.add_display(note := told.append)  # after the one that shows
    try:
        shown = cells(f"%bls late {'--stream' if options else ''}").stdout
        until(lambda: told)
    finally:
        logs.remove_display(note)
    late = shown + capsys.readouterr().out
    assert "[error] late" in late
    assert "ValueError: too late" in late


@pytest.mark.parametrize(
    ("level", "shown"), [("verbose", "viwe"), ("info", "iwe"), ("WARNING", "we"), ("error", "e"), ("off", "")]
)
def test_the_setting(cells, level: str, shown: str) -> None:
    cells(chatty(LEVELS))
    cells(f"%config BLSNotebook.log_level = {level!r}")
    lines = cells("%bls chatty").stdout.splitlines()[:-1]
    assert "".join(line[-1] for line in lines) == shown
    cells("%config BLSNotebook.log_level = 'loud'")  # is no level, so it changes nothing
    lines = cells("%bls chatty").stdout.splitlines()[:-1]
    assert "".join(line[-1] for line in lines) == shown


def test_from_other_threads_and_loops(cells) -> None:
    for kind, call in (("async def", ""), ("def", "--async"), ("async def", "--async -n 2")):
        made = cells(chatty(kind=kind))
        assert made.success, made.text
        assert cells(f"%bls chatty {call}").stdout.startswith("[info] chatty: hello\n")
    cells(chatty('await asyncio.to_thread(log.log_info, "from a thread")', "async def"))
    assert cells("%bls chatty").stdout == "[info] chatty: from a thread\n"
    cells(chatty('t = threading.Thread(target=self.say, args=("x",)); t.start(); t.join()'))
    gates.open_gate("say")
    assert cells("%bls chatty").stdout == "[warning] chatty (in the background): x\n", "its cell is unknown"


def test_a_request_that_outlives_its_cell_names_it_in_a_terminal(cells) -> None:
    cells(chatty('self.say("late")'))
    before = cells.shell.execution_count
    cells(
        "import contextvars, threading\n"
        "import bls_notebook as bls\n"
        "thread = threading.Thread(target=contextvars.copy_context().run,\n"
        "    args=(bls.current_repository().infer, 'chatty', {}))\n"
        "thread.start()"
    )
    gates.open_gate("say")
    shown = cells("thread.join()")
    assert shown.stdout == f"[warning] chatty (by In [{before}]): late\n"


def test_models_that_log_in_a_loop(cells) -> None:
    cells(chatty("for n in range(3000): log.log_info(str(n))\n        log.log_error('at last')"))
    shown = cells("%bls chatty").stdout.splitlines()
    left = next(at for at, line in enumerate(shown) if "not shown here" in line)
    assert shown[:left] == [f"[info] chatty: {n}" for n in range(MOST)]
    assert "logger 'bls_notebook.model'" in shown[left]
    assert shown[left + 1 :] == ["[error] chatty: at last"]  # not drowned


def test_without_the_extension_nothing_is_shown(cells, shell) -> None:
    cells(chatty())
    shell.extension_manager.unload_extension("bls_notebook")
    assert cells("import bls_notebook as bls; bls.current_repository().infer('chatty', {});").stdout == ""
    assert not logging.getLogger(logs.LOGGER).handlers
    shell.extension_manager.load_extension("bls_notebook")
    assert "hello" in cells("bls.current_repository().infer('chatty', {});").stdout


def test_pythons_logging_gets_what_is_not_shown(cells, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logs.LOGGER)
    cells("%config BLSNotebook.log_level = 'off'")
    cells(chatty(LEVELS))
    caplog.clear()
    cells("%bls chatty")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO", "WARNING", "ERROR"]
