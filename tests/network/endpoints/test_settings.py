"""Trace and log settings over both protocols, with tritonclient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import bls_notebook as bls
from tests.repository.models import ECHOES

CONFIG = 'backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: -1 } '
CONFIG += 'output { name: "OUT" data_type: TYPE_FP32 dims: -1 }'
TRACE = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "",
         "trace_mode": "triton"}  # fmt: skip
LOG = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0,
       "log_format": "default"}  # fmt: skip


@pytest.fixture(scope="module", params=["http", "grpc"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with bls.ModelRepository() as repo:
        repo.define("m", ECHOES, CONFIG)
        with bls.endpoint(repo, token="") as endpoint:
            module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
            url = endpoint.url.removeprefix("http://") if request.param == "http" else endpoint.grpc_url
            client = module.InferenceServerClient(url)
            yield client
            client.close()


def trace(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    values = {name: list(setting.value) for name, setting in answer.settings.items()}
    return {name: value if name == "trace_level" else value[0] for name, value in values.items()}


def log(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    return {name: getattr(s, s.WhichOneof("parameter_choice")) for name, s in answer.settings.items()}


def refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InferenceServerException) as refusal:
        call()
    assert words in refusal.value.message()


def test_trace_settings_of_models_fall_back_to_the_global_ones(client: Any) -> None:
    assert trace(client.get_trace_settings()) == trace(client.get_trace_settings("m")) == TRACE
    assert trace(client.update_trace_settings("m", {"trace_rate": "12", "log_frequency": "34"}))["trace_rate"] == "12"
    changed = client.update_trace_settings(settings={"trace_rate": "56", "trace_count": "78", "trace_level": ["OFF"]})
    assert trace(changed) == {**TRACE, "trace_rate": "56", "trace_count": "78"}
    found = trace(client.get_trace_settings("m"))
    assert found == {**TRACE, "trace_rate": "12", "trace_count": "78", "log_frequency": "34"}
    assert trace(client.update_trace_settings("m", {"trace_rate": None}))["trace_rate"] == "56"
    client.update_trace_settings("m", {"log_frequency": None})
    cleared = client.update_trace_settings(settings={"trace_rate": None, "trace_count": None, "trace_level": None})
    assert trace(cleared) == trace(client.get_trace_settings("m")) == TRACE


def test_invalid_trace_settings_are_refused_and_change_nothing(client: Any) -> None:
    for settings, words in (
        ({"trace_file": "x"}, "trace file location can not be updated through network protocol"),
        ({"trace_level": ["TIMESTAMPS"]}, "Attempting to set invalid trace setting :trace file name is not given"),
        ({"trace_level": ["OFF", "TENSORS"]}, "Expect only one trace level 'OFF' is specified"),
        ({"trace_rate": "x"}, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": "99999999999"}, "value is out of range [ 0, 4294967295 ], got: 99999999999"),
        ({"trace_count": "-2"}, "Unable to parse 'trace_count'. Expecting value >= -1, got"),
    ):
        refused(lambda settings=settings: client.update_trace_settings(settings=settings), words)
    refused(lambda: client.get_trace_settings("nowhere"), "Request for unknown model")
    assert trace(client.get_trace_settings()) == TRACE


LOGGING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for level in ("info", "warn", "error", "verbose"):
            getattr(pb_utils.Logger, f"log_{level}")(level)
        return [pb_utils.InferenceResponse(request.inputs()) for request in requests]
"""


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """The messages that the loggers of bls_notebook write, which its logger limits to INFO."""
    out: list[str] = []
    logger, handler = logging.getLogger("bls_notebook"), logging.Handler()
    handler.emit = lambda record: out.append(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield out
    logger.setLevel(level)
    logger.removeHandler(handler)


def test_log_settings_turn_messages_on_and_off(messages: list[str]) -> None:
    logger = logging.getLogger("bls_notebook")
    tensors = "".join(f'{way}put {{ name: "X" data_type: TYPE_FP32 dims: [1] }} ' for way in ("in", "out"))

    def logged() -> list[str]:
        messages.clear()
        repo.infer("logging", {"X": [1]})
        for name in ("info", "warning", "error"):
            getattr(logger, name)("its own")
        return list(messages)

    with bls.ModelRepository() as repo:
        repo.define("logging", LOGGING, tensors)
        everything = ["info", "warn", "error", *["its own"] * 3]
        assert logged() == everything
        with bls.endpoint(repo, token="") as endpoint:
            client = tritonclient.http.InferenceServerClient(endpoint.url.removeprefix("http://"))
            client.update_log_settings({"log_info": False, "log_error": False})
            assert logged() == ["warn", "its own"]
            client.update_log_settings({"log_verbose_level": 1, "log_info": True})
            assert logged() == ["info", "warn", "verbose", *["its own"] * 2]
            client.update_log_settings({"log_verbose_level": 0})
            assert logged() == ["info", "warn", *["its own"] * 2]
            client.close()
        assert logged() == everything
        assert logger.level == logging.INFO


def test_log_settings_are_kept(client: Any) -> None:
    assert log(client.get_log_settings()) == LOG
    changes = {"log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"}
    assert log(client.update_log_settings(changes)) == {**LOG, **changes}
    for settings, words in (
        ({"log_file": "x"}, "log file location can not be updated through network protocol"),
        ({"log_format": "x"}, "invalid argument for log_format, got: x"),
    ):
        refused(lambda settings=settings: client.update_log_settings(settings), words)
    assert log(client.update_log_settings({name: LOG[name] for name in changes})) == LOG
