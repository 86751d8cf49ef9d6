"""`Logger`: messages of models in Python's logging, with the model, the file and the line."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine import logs
from bls_notebook.pb_utils import Logger
from bls_notebook.records.messages import LogLine

SOURCE = """
import threading
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        pb_utils.Logger.log_info("starting")

    def execute(self, requests):
        pb_utils.Logger.log("plain")
        pb_utils.Logger.log("at a level", pb_utils.Logger.WARNING)
        pb_utils.Logger.log(message="by name", level=pb_utils.Logger.ERROR)
        pb_utils.Logger.log_info("info %s {}")
        pb_utils.Logger.log_warn("warn")
        pb_utils.Logger.log_error("error")
        pb_utils.Logger.log_verbose("verbose")
        thread = threading.Thread(target=self.say)
        thread.start()
        thread.join()
        return [pb_utils.InferenceResponse() for _ in requests]

    def say(self):
        pb_utils.Logger.log_warn(b"from a thread")

    def finalize(self):
        pb_utils.Logger.log_info("ending")
"""


def test_messages_go_to_pythons_logging(
    repo: bls.ModelRepository, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "bls_notebook.model")
    repo.define("chatty", SOURCE)
    assert repo.infer("chatty", {}).error is None
    repo.unload("chatty")
    records = [r for r in caplog.records if r.name.startswith("bls_notebook.model")]
    assert [(r.levelname, r.getMessage()) for r in records] == [
        ("INFO", "starting"),
        ("INFO", "plain"),
        ("WARNING", "at a level"),
        ("ERROR", "by name"),
        ("INFO", "info %s {}"),
        ("WARNING", "warn"),
        ("ERROR", "error"),
        ("DEBUG", "verbose"),
        ("WARNING", "from a thread"),
        ("INFO", "ending"),
    ]
    lines = SOURCE.splitlines()
    for record in records:
        assert record.filename == "model.py"
        assert record.getMessage().split()[0] in lines[record.lineno - 1]
    assert all(r.name == "bls_notebook.model.chatty" for r in records)
    assert capsys.readouterr().err == ""


def test_outside_a_model_messages_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Logger.log_warn("careful")
    assert capsys.readouterr().err == "[warning] careful\n"


@pytest.mark.parametrize("message", [None, 5, ["x"], ValueError("x"), "half \ud800"])
def test_a_message_is_text(message: Any) -> None:
    for log in (Logger.log, Logger.log_info, Logger.log_warn, Logger.log_error, Logger.log_verbose):
        with pytest.raises(TypeError, match="message must be str"):
            log(message)


@pytest.mark.parametrize("level", [None, 0, "INFO", logging.INFO])
def test_a_level_is_one_of_the_four(level: Any) -> None:
    with pytest.raises(TypeError, match="level must be"):
        Logger.log("m", level)


def test_a_display_gets_every_message_and_one_that_raises_is_asked_no_more(
    repo: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[LogLine] = []

    def broken(line: LogLine) -> None:
        raise RuntimeError("broken")

    logs.add_display(broken)
    logs.add_display(seen.append)
    try:
        repo.define("chatty", SOURCE)
        for _ in range(2):
            assert repo.infer("chatty", {}).error is None
    finally:
        logs.remove_display(broken)
        logs.remove_display(seen.append)
    assert [(line.level, line.message) for line in seen[:3]] == [
        ("info", "starting"),
        ("info", "plain"),
        ("warning", "at a level"),
    ]
    assert {line.model for line in seen} == {"chatty"}
    assert [line.message for line in seen if line.background] == ["from a thread"] * 2
    assert len(seen) == 17
    reports = [r for r in caplog.records if r.name == "bls_notebook"]
    assert [r.getMessage() for r in reports] == ["a display of models' messages failed and was removed"]
