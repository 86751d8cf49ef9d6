"""What a model raises or returns after its requests have been answered goes to the log, as on the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine import logs
from bls_notebook.records.messages import LogLine
from tests.engine.harness import assert_all_idle, ints, until
from tests.engine.sources import model, pbtxt

CLOSED = "TritonModelException: Unable to send response. Response sender has been closed."
SECOND = "Unable to send response. Non-decoupled model cannot send more than one response."
NOT_NONE = "Python model 'm_0_0' is using the decoupled mode and the execute function must return None."
NO_LIST = "Expected a list in the execute return, found type '<class 'int'>'."

DEEDS = {  # what follows the answer: for a model that is decoupled, and for one that is not
    "raise ValueError('late')": ("ValueError: late", "ValueError: late"),
    "raise SystemExit(3)": ("SystemExit: 3", "SystemExit: 3"),
    "sender.send(answer(2))": (CLOSED, f"TritonModelException: {SECOND}"),
    "sender.send(flags=FINAL)": (CLOSED, CLOSED),
    "return [answer(2)]": (NOT_NONE, SECOND),
    "return 5": (NOT_NONE, NO_LIST),
    "return None": (None, None),
}


@pytest.fixture
def told() -> Iterator[list[LogLine]]:
    lines: list[LogLine] = []
    show = lines.append
    logs.add_display(show)
    yield lines
    logs.remove_display(show)


def source(deed: str, kind: str) -> str:
    return model(f"""
{kind} execute(self, requests):
    sender = requests[0].get_response_sender()
    sender.send(answer(1), FINAL)
    {deed}
""")


@pytest.mark.parametrize("batcher", ["", "dynamic_batching {}"], ids=["default", "dynamic"])
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("decoupled", [True, False], ids=["decoupled", "plain"])
@pytest.mark.parametrize("deed", DEEDS)
def test_the_caller_has_its_answer_and_the_log_the_error(
    repo: bls.ModelRepository, told: list[LogLine], deed: str, decoupled: bool, kind: str, batcher: str
) -> None:
    config = f"{pbtxt(decoupled=decoupled)}\n{batcher}"
    repo.define("m", source(deed, kind), config)
    if decoupled:
        [response] = repo.stream("m", ints(0))
    else:
        response = repo.infer("m", ints(0))
    assert response.error is None
    assert response["Y"].as_numpy().tolist() == [1]
    assert_all_idle(repo)
    wanted = DEEDS[deed][not decoupled]
    if wanted is None:
        assert told == []
        return
    until(lambda: told)
    [line] = told
    assert (line.level, line.model) == ("error", "m")
    assert line.message.startswith(f"Failed to process the request(s) for model 'm_0_0', message: {wanted}")
    if "raise" in deed:
        assert (line.file, line.line > 0) == ("m/1/model.py", True)


def test_an_error_that_somebody_gets_is_not_logged(repo: bls.ModelRepository, told: list[LogLine]) -> None:
    repo.define("m", model("def execute(self, requests):\n    raise ValueError('in time')"), pbtxt())
    assert repo.infer("m", ints(0)).error is not None
    streams = model("""
def execute(self, requests):
    requests[0].get_response_sender().send(answer(1))
    raise ValueError('in time')
""")
    repo.define("s", streams, pbtxt(decoupled=True))
    answers: list[Any] = list(repo.stream("s", ints(0)))
    assert [a.error is None for a in answers] == [True, False]
    assert told == []
