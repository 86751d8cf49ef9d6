"""`Host`: the contract of each method, as a capability outside the core uses it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.extending import Host, host_of, operation, undo
from bls_notebook.repository.config import parse_config
from bls_notebook.repository.source.model_source import ModelSource, RemoteVersions
from bls_notebook.repository.variant import VariantChange
from tests.engine.harness import Caller, message, until
from tests.repository import models
from tests.repository.models import FLOATS, values
from tests.waiting import LIMIT

X = np.float32([1, 2])
DOUBLE = """
import triton_python_backend_utils as pb_utils

def response(values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", values)])

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [response(2 * request.inputs()[0].as_numpy()) for request in requests]
"""
TRIPLE = DOUBLE.replace("2 * request", "3 * request")
_EXECUTE = "def execute(self, requests):"
WAITING = DOUBLE.replace(_EXECUTE, f"{_EXECUTE}\n        while True:\n            pass")
STREAM = f"""{DOUBLE[: DOUBLE.index("        return [response")]}
        for request in requests:
            sender = request.get_response_sender()
            for factor in (1, 2):
                sender.send(response(factor * request.inputs()[0].as_numpy()))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture
def host(disk: bls.ModelRepository) -> Host:
    return Host(disk)


def write(host: Host, name: str, source: str = DOUBLE) -> Path:
    return models.write(host.repository.paths[0], name, source, "").parent


def answer_of(host: Host, name: str) -> list[float]:
    return values(host.repository.infer(name, {"X": X}))


def test_the_host_of_no_repository_is_that_of_the_current_one(disk: bls.ModelRepository) -> None:
    before = bls.current_repository()
    bls.set_current_repository(disk)
    try:
        assert host_of().repository is disk
        assert host_of(before).repository is before
    finally:
        bls.set_current_repository(before)


def test_models_are_looked_up_and_never_loaded(host: Host) -> None:
    write(host, "in_folder")
    host.repository.define("double", DOUBLE)
    assert (host.names(), host.find("in_folder"), host.find("nowhere")) == (["double"], None, None)
    assert host.ready("double") is host.find("double")
    with pytest.raises(bls.ModelNotFoundError, match="did you mean `double`"):
        host.ready("dubble")
    host.repository.load("in_folder")
    model = host.find("in_folder", 1)
    assert model is not None
    assert model is host.find("in_folder")
    assert (model.name, model.version, host.find("in_folder", 2)) == ("in_folder", 1, None)
    names = host.names()
    host.repository.unload("double")
    assert (names, host.names()) == (["double", "in_folder"], ["in_folder"])


def test_source_reads_the_folder_and_runs_nothing_or_is_what_serves(host: Host) -> None:
    folder = write(host, "broken", "raise RuntimeError('it ran')")
    assert host.source("broken").folder == folder
    host.repository.define("cell", DOUBLE)
    assert host.source("cell").origin == "cell"
    write(host, "double")
    for name, loaded in (("nowhere", False), ("double", True)):
        with pytest.raises(bls.ModelNotFoundError):
            host.source(name, loaded=loaded)
    host.repository.load("double", {"max_batch_size": 0})
    assert [host.source("double", loaded=loaded).config_is_json for loaded in (True, False)] == [True, False]


def test_failed_says_why_in_the_index(host: Host) -> None:
    write(host, "double")
    host.failed("double", "its weights are missing")
    (record,) = host.repository.index()
    assert (record.state, record.reason) == ("UNAVAILABLE", "its weights are missing")
    host.repository.load("double")
    assert host.repository.index()[0].state == "READY"


def test_requests_are_validated_and_send_gives_a_future_of_the_response(host: Host) -> None:
    host.repository.define("double", DOUBLE)
    host.repository.define("stream", STREAM, FLOATS + "model_transaction_policy { decoupled: true }")
    request = host.request("double", {"X": [1, 2]}, request_id="7")  # validated and not sent
    assert isinstance(request, pb_utils.InferenceRequest)
    assert (request.request_id(), host.repository.statistics_records("double")[0].success.count) == ("7", 0)
    with pytest.raises(bls.BLSError, match="model 'double'"):
        host.request("double", {"X": object()})
    future = host.send(host.request("double", {"X": X}))
    assert list(future.result()["Y"].as_numpy()) == [2, 4]
    assert not future.cancel()
    streamed = host.send(host.request("stream", {"X": X}), stream=True).result()
    assert [float(response["Y"].as_numpy()[1]) for response in streamed] == [2, 4]
    assert host.send(host.request("nowhere", {"X": X})).result().error is not None


def test_cancelling_a_future_cancels_the_request(host: Host) -> None:
    host.repository.define("waiting", WAITING)
    future = host.send(host.request("waiting", {"X": X}))
    model = host.ready("waiting")
    until(lambda: model.instances[0].holder is not None)
    assert future.cancel()
    assert future.result().error is not None
    assert not future.cancel()


class Seven:
    """Answers every call with 7."""

    def answer(self, call: Any, wait: Any) -> Iterator[Any]:
        yield pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.float32([7]))])


def test_substitutes_answer_for_several_models_and_a_variant_is_beside_the_own_version(host: Host) -> None:
    host.repository.define("a", DOUBLE)
    host.repository.define("b", DOUBLE)
    own = host.versions("a")
    with host.substitute({"a": Seven(), "b": Seven()}) as substitution:
        assert answer_of(host, "a") + answer_of(host, "b") == [7, 7]
        assert (host.versions("a") == own, host.versions("a", own=True) == own) == (False, True)
    assert host.versions("a") == own
    with host.variant({"a": VariantChange(source=TRIPLE)}) as variant:
        assert answer_of(host, "a") == [2, 4]
        with variant.serving():
            assert answer_of(host, "a") == [3, 6]
    assert ([call.model for call in substitution.calls], answer_of(host, "a")) == (["a", "b"], [2, 4])


class Elsewhere:
    """A model on a server that is a function here."""

    address = "grpc://elsewhere:8001"
    closed = False
    lost = ""
    is_async = False

    def __init__(self, factor: float = 10.0, problem: str = "") -> None:
        self.factor, self.problem = factor, problem
        self.finalized = 0

    @property
    def link(self) -> Elsewhere:
        return self

    def is_gone(self) -> bool:
        return False

    @contextmanager
    def described(self, name: str) -> Iterator[RemoteVersions]:
        if self.problem:
            raise bls.ModelLoadError(self.problem, name)
        config = parse_config('backend: "remote"' + FLOATS, model=name)
        yield RemoteVersions(config, {3: lambda decoupled, outputs: self})

    def send(self, request: pb_utils.InferenceRequest) -> Any:
        given = [request]

        class Exchange:
            def start(exchange, deliver: Any, in_thread: Any) -> None:  # noqa: N805
                values = given.pop().inputs()[0].as_numpy() * np.float32(self.factor)
                deliver([pb_utils.InferenceResponse([pb_utils.Tensor("Y", values)])], True)

            def cancel(exchange, lost: str = "") -> None:  # noqa: N805
                pass

        return Exchange()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> Any:
        raise NotImplementedError

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        return []

    def ready(self) -> bool:
        return True

    def finalize(self) -> None:
        self.finalized += 1


def test_registered_models_serve_until_they_are_removed(host: Host) -> None:
    remote = {"a": Elsewhere(), "b": Elsewhere(100)}
    registration = host.register(remote)
    assert (answer_of(host, "a") + answer_of(host, "b"), host.ready("b").version) == ([10, 20, 100, 200], 3)
    registration.lost("it is switched off")
    assert {record.reason for record in host.repository.index()} == {"it is switched off"}
    registration.refresh()  # nothing while it is lost
    registration.lost("")
    assert {record.state for record in host.repository.index()} == {"READY"}
    remote["a"].factor = 20
    registration.refresh()
    assert answer_of(host, "a") == [20, 40]
    registration.remove()
    registration.remove()
    assert (host.names(), host.repository.index()) == ([], [])
    assert remote["b"].finalized > 0


def test_registering_is_all_or_nothing_and_leaves_other_models_of_the_names_alone(host: Host) -> None:
    with pytest.raises(bls.ModelLoadError, match="no such model there"):
        host.register({"a": Elsewhere(), "b": Elsewhere(problem="no such model there")})
    assert (host.names(), host.repository.index()) == ([], [])
    registration = host.register({"a": Elsewhere(), "b": Elsewhere()})
    host.repository.define("a", DOUBLE)
    assert registration.names() == ["b"]
    registration.remove()
    assert answer_of(host, "a") == [2, 4]


def test_on_missing_loads_on_the_thread_of_the_request(host: Host) -> None:
    write(host, "double")
    threads: list[int] = []

    def load(name: str) -> str:
        threads.append(threading.get_ident())
        if name != "double":
            return "only double is known"
        host.repository.load(name)
        return ""

    undo = host.on_missing(load)
    assert (answer_of(host, "double"), threads) == ([2, 4], [threading.get_ident()])
    assert "only double is known" in message(host.repository.infer("other", {"X": X}))
    undo()
    undo()
    host.repository.unload("double")
    assert host.repository.infer("double", {"X": X}).error is not None
    assert len(threads) == 2


def test_before_load_changes_sources_of_folders(host: Host) -> None:
    for name in ("a", "b"):
        write(host, name)

    def changed(source: ModelSource) -> ModelSource:
        if source.name == "b":
            raise bls.BLSError("b may not load")
        return replace(source, config='max_batch_size: 0 parameters { key: "k" value { string_value: "v" } }')

    undo = host.before_load(changed)
    host.repository.load("a")
    assert host.ready("a").spec.parameters == {"k": "v"}
    with pytest.raises(bls.BLSError, match="b may not load"):
        host.repository.load("b")
    undo()
    undo()
    host.repository.load("b")
    assert answer_of(host, "b") == [2, 4]


def test_before_serving_sees_versions_before_any_request(host: Host) -> None:
    seen: list[tuple[str, bool]] = []

    def note(versions: Mapping[int, Any]) -> None:
        seen.extend((model.name, host.find(model.name) is model) for model in versions.values())

    undo = host.before_serving(note)
    host.repository.define("double", DOUBLE)
    undo()
    undo()
    host.repository.define("other", DOUBLE)
    assert seen == [("double", False)]


def test_a_hook_may_use_the_repository(host: Host) -> None:
    host.repository.define("other", DOUBLE)
    answers: list[list[float]] = []

    def ask(source: ModelSource) -> ModelSource:
        answers.append(Caller(answer_of, host, "other").result(LIMIT))
        host.repository.reload("other")
        return source

    write(host, "double")
    host.before_load(ask)
    host.repository.load("double")
    assert answers == [[2, 4]]


def test_added_folders_are_searched_and_private_ones_removed(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "more"
    other.mkdir()
    write(host, "double").rename(other / "late")
    assert host.add_folder(other) == other.resolve()
    assert host.add_folder(other) in host.repository.paths
    assert len(host.repository.paths) == 2
    host.repository.load("late")
    private = host.add_folder()
    (private / "file").write_text("x")
    assert private not in host.repository.paths
    with pytest.raises(bls.BLSError, match="no such folder"):
        host.add_folder(tmp_path / "nowhere")
    host.repository.close()
    assert not private.exists()


def test_ctrl_c_does_not_split_an_operation() -> None:
    done: list[str] = []

    @operation
    def change() -> None:
        undo(lambda: done.append("undone"))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        done.append("changed")

    with pytest.raises(KeyboardInterrupt):
        change()
    until(lambda: done == ["changed", "undone"], "it is undone")
