"""The sequence batcher: slots, backlog, timeouts, controls and states."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.schedulers.sequence import Sequences, SequenceStep, Slot
from bls_notebook.pb_utils.errors import ErrorCode
from tests.engine import gates
from tests.engine.fake_clock import FakeClock
from tests.engine.harness import Caller, assert_all_idle, message, queued, row, until
from tests.engine.sources import model

START, END = 1, 2

REPORT = """
def initialize(self, args):
    import json
    config = json.loads(args["model_config"])
    self.names = [c["name"] for c in config["sequence_batching"]["control_input"]]
    self.names += [s["input_name"] for s in config["sequence_batching"].get("state", [])]

def execute(self, requests):
    batch = []
    for request in requests:
        found = {n: pb.get_input_tensor_by_name(request, n).as_numpy() for n in self.names}
        x = pb.get_input_tensor_by_name(request, "X").as_numpy()
        batch.append((int(x.ravel()[0]), x.shape, {n: (a.tolist(), a.dtype.name) for n, a in found.items()},
                      request.correlation_id(), request.flags()))
        if x.ravel()[0] < 0:
            gates.open_gate("held")
            gates.pass_gate("go")
    gates.log.put(batch)
    return [echo(r) for r in requests]
"""


def config(sequence: str, rows: int = 2, count: int = 1, decoupled: bool = False, dims: str = "1") -> str:
    return f"""
max_batch_size: {rows}
sequence_batching {{ {sequence} }}
model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}
input [ {{ name: "X" data_type: TYPE_INT32 dims: [ {dims} ] }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ {dims} ] }} ]
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
"""


def control(name: str, kind: str, values: str) -> str:
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}\n'


def corrid(datatype: str) -> str:
    return control("ID", "CORRID", f"data_type: TYPE_{datatype}")


def send(
    repo: bls.ModelRepository, value: int, sequence: int | str, flags: int = 0, name: str = "m", **more: Any
) -> Any:
    return repo.infer(name, row(value), correlation_id=sequence, flags=flags, **more)


@pytest.mark.parametrize(("values", "dtype", "false", "true"), [
    ("int32_false_true: [ 3, 7 ]", "int32", 3, 7),
    ("fp32_false_true: [ 0.5, -1 ]", "float32", 0.5, -1.0),
    ("bool_false_true: [ true, false ]", "bool", True, False),
])  # fmt: skip
@pytest.mark.parametrize("rows", [0, 2])
def test_flags_of_every_data_type(
    repo: bls.ModelRepository, values: str, dtype: str, false: Any, true: Any, rows: int
) -> None:
    controls = control("S", "START", values) + control("E", "END", values) + control("R", "READY", values)
    repo.define("m", model(REPORT), config(controls, rows))
    shape = (lambda v: [[v]]) if rows else (lambda v: [v])
    array = np.array(shape(5), np.int32)
    for flags, start, end in ((START, true, false), (0, false, false), (END, false, true), (3, true, true)):
        assert repo.infer("m", {"X": array}, correlation_id=9, flags=flags).error is None
        ((_, _, seen, sequence, got),) = gates.logged()[0]
        assert (sequence, got) == (9, flags)
        assert seen == {n: (shape(v), dtype) for n, v in (("S", start), ("E", end), ("R", true))}


@pytest.mark.parametrize(("datatype", "sequence", "seen"), [
    ("UINT64", 2**64 - 1, 2**64 - 1),
    ("INT64", 2**64 - 1, -1),
    ("UINT32", 2**40 + 5, 5),
    ("INT32", 2**32 - 2, -2),
    ("STRING", "blue é", "blue é".encode()),
])  # fmt: skip
@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 3 }"])
def test_correlation_ids_of_every_data_type(
    repo: bls.ModelRepository, datatype: str, sequence: int | str, seen: Any, strategy: str
) -> None:
    repo.define("m", model(REPORT), config(strategy + corrid(datatype)))
    assert send(repo, 1, sequence, START | END).error is None
    ((_, _, controls, own, _),) = gates.logged()[0]
    assert controls["ID"][0] == [[seen]]
    assert own == sequence
    assert type(own) is type(sequence)


def test_text_and_number_are_different_sequences(repo: bls.ModelRepository) -> None:
    repo.define("m", model(REPORT), config(""))
    assert send(repo, 1, 5, START).error is None
    refused = send(repo, 2, "5")
    assert "must specify the START flag" in message(refused)
    assert refused.error is not None
    assert refused.error.code() == ErrorCode.INVALID_ARG
    assert send(repo, 3, 5, END).error is None


@pytest.mark.parametrize(("expected", "sequence", "got"), [
    ("STRING", 12, "UINT64"), ("UINT64", "blue", "BYTES"), ("INT32", "a long one", "BYTES")
])  # fmt: skip
def test_a_correlation_id_of_the_other_type_is_refused(
    repo: bls.ModelRepository, expected: str, sequence: int | str, got: str
) -> None:
    repo.define("m", model(REPORT), config("direct { }" + corrid(expected)))
    assert message(send(repo, 1, sequence, START | END)) == (
        "Model m - Error when running inference: [request id: <id_unknown>] sequence batching control 'ID' data-type "
        f"is '{got}', but model 'm' expects '{expected.replace('STRING', 'BYTES')}'"
    )


def test_errors_of_sequences(repo: bls.ModelRepository) -> None:
    repo.define("m", model(REPORT), config(corrid("UINT64")))
    prefix = "Model m - Error when running inference: inference request"
    assert message(send(repo, 1, 0, START)) == (
        f"{prefix} to model 'm' must specify a non-zero or non-empty correlation ID"
    )
    assert message(send(repo, 1, 7)) == (
        f"{prefix} for sequence 7 to model 'm' must specify the START flag on the first request of the sequence"
    )
    two = repo.infer("m", {"X": np.zeros((2, 1), np.int32)}, correlation_id=1, flags=START)
    assert message(two) == (f"{prefix} to model 'm' must specify batch-size 1 due to requirements of sequence batcher")
    assert gates.logged() == []


def test_a_null_request_has_the_shapes_of_the_others_and_nothing_of_theirs(repo: bls.ModelRepository) -> None:
    ready = control("R", "READY", "int32_false_true: [ 0, 1 ]")
    repo.define("m", model(REPORT), config("direct { }" + ready + corrid("STRING"), 4, dims="-1"))
    assert send(repo, 1, "first", START, name="m").error is None
    wide = np.array([[2, 3, 4]], np.int32)
    assert repo.infer("m", {"X": wide}, correlation_id="second", flags=START).error is None
    assert gates.logged()[1] == [
        (0, (1, 3), {"R": ([[0]], "int32"), "ID": ([[b""]], "object")}, 0, 0),
        (2, (1, 3), {"R": ([[1]], "int32"), "ID": ([[b"second"]], "object")}, "second", START),
    ]


def test_an_idle_sequence_is_forgotten_and_its_slot_given_on(repo: bls.ModelRepository, clock: FakeClock) -> None:
    repo.define("m", model(REPORT), config("max_sequence_idle_microseconds: 5000000" + "\n" + corrid("UINT64"), 1))
    assert send(repo, 1, 11, START).error is None
    clock.advance(4)
    assert send(repo, 2, 11).error is None  # not idle: this counts anew
    waits = Caller(send, repo, 3, 12, START | END)
    until(lambda: queued(repo, "m") == 1)
    clock.advance(4.9)
    assert not waits.done
    clock.advance(0.2)
    assert waits.result().error is None
    assert "must specify the START flag" in message(send(repo, 4, 11))
    assert [b[0][0] for b in gates.logged()] == [1, 2, 3]
    assert_all_idle(repo)


def test_the_timeout_of_a_request_that_waits_for_a_slot(repo: bls.ModelRepository, clock: FakeClock) -> None:
    repo.define("m", model(REPORT), config(f"max_sequence_idle_microseconds: 50000000 {corrid('UINT64')}", 1))
    assert send(repo, 1, 11, START).error is None
    waits = Caller(lambda: send(repo, 2, 12, START, timeout=1_000_000))
    until(lambda: queued(repo, "m") == 1)
    clock.advance(0.9)
    assert not waits.done
    clock.advance(0.2)
    assert message(waits.result()) == "timeout of the corresponding sequence has been expired"
    assert send(repo, 3, 11, END).error is None
    assert_all_idle(repo)


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 1 }"])
def test_cancelling_a_step_ends_its_sequence_and_no_other(repo: bls.ModelRepository, strategy: str) -> None:
    repo.define("m", model(REPORT), config(strategy + corrid("UINT64"), 1))
    first = Caller(send, repo, -1, 11, START)
    gates.pass_gate("held")

    async def steps() -> list[Any]:
        todo = [(1, 11, 0), (2, 11, 0), (3, 11, END), (4, 12, START | END)]
        tasks = []
        for number, (value, sequence, flags) in enumerate(todo, 1):
            one = repo.infer_async("m", row(value), correlation_id=sequence, flags=flags)
            tasks.append(asyncio.ensure_future(one))
            await asyncio.to_thread(until, lambda n=number: queued(repo, "m") == n)
        tasks[1].cancel()
        await asyncio.to_thread(until, lambda: queued(repo, "m") < 4)
        gates.open_gate("go")
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(steps())
    assert first.result().error is None
    assert answers[0].error is None  # it came before
    assert isinstance(answers[1], asyncio.CancelledError)
    assert "cancelled" in message(answers[2])
    assert answers[3].error is None
    assert [b[0][0] for b in gates.logged()] == [-1, 1, 4]
    assert_all_idle(repo)


def test_an_iterative_decoupled_model_with_two_requests_at_once(repo: bls.ModelRepository) -> None:
    repo.define("m", model('''
def initialize(self, args):
    self.left = {}

def execute(self, requests):
    for request in requests:
        key = request.correlation_id()
        left = self.left.setdefault(key, number(request)) - 1
        request.inputs()[0].as_numpy()[:] = -99
        self.left[key] = left
        sender = request.get_response_sender()
        if left > 0:
            request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            sender.send(reply(left))
        else:
            del self.left[key]
            sender.send(reply(left), flags=FINAL)
'''), config("iterative_sequence: true", decoupled=True))  # fmt: skip

    def stream(n: int) -> list[int]:
        return [r["Y"].as_numpy().item() for r in repo.stream("m", row(n))]

    callers = [Caller(stream, n) for n in (5, 3, 1, 4)]
    assert [c.result() for c in callers] == [[4, 3, 2, 1, 0], [2, 1, 0], [0], [3, 2, 1, 0]]


def test_a_request_that_is_always_rescheduled_ends_when_its_caller_leaves(repo: bls.ModelRepository) -> None:
    repo.define("m", model('''
def execute(self, requests):
    for request in requests:
        request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        gates.count("runs")
        request.get_response_sender().send(reply(1))
        while gates.counts["runs"] == 50 and not request.is_cancelled() and not gates.over[0]:
            time.sleep(0.001)
'''), config("iterative_sequence: true", decoupled=True))  # fmt: skip
    responses = repo.stream("m", row(1))
    assert [next(responses)["Y"].as_numpy().item() for _ in range(50)] == [1] * 50
    responses.close()  # type: ignore[attr-defined]


def test_a_dropped_sender_of_an_iterative_sequence_is_an_error_and_no_hang(repo: bls.ModelRepository) -> None:
    repo.define("m", model('''
def execute(self, requests):
    for request in requests:
        if request.flags():
            request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        request.get_response_sender().send(reply(1))
'''), config("iterative_sequence: true", decoupled=True))  # fmt: skip
    *some, last = repo.stream("m", row(1))
    assert [r["Y"].as_numpy().item() for r in some] == [1, 1]
    assert "final flag" in message(last)


def test_states_are_inputs_and_stay_as_they_began(repo: bls.ModelRepository) -> None:
    """The Python backend has no way to set one."""
    state = """
      state { input_name: "A" output_name: "B" data_type: TYPE_FP32 dims: [ 2 ]
              initial_state { name: "a" data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }
      state { input_name: "C" output_name: "D" data_type: TYPE_STRING dims: [ -1 ] }"""
    repo.define("m", model(REPORT), config(corrid("INT32") + state))
    for flags in (START, 0, END):
        assert send(repo, 1, 4, flags).error is None
    for batch in gates.logged():
        assert batch[0][2]["A"] == ([[0.0, 0.0]], "float32")
        assert batch[0][2]["C"] == ([[b""]], "object")


FEW = "t: expected 1 string elements for inference input 'C', got 0"
MANY = "t: unexpected number of string elements 2 for inference input 'C', expecting 1"
CUT = "t: incomplete string data for inference input 'C', expecting string of length 2 but only 1 bytes available"


@pytest.mark.parametrize(
    ("numbers", "text", "refused"),
    [
        (np.arange(3, dtype=np.float32).tobytes(), b"\2\0\0\0ab", ""),  # only the beginning of numbers is read
        (bytes(7), b"\0\0\0\0", r"'A': n has 7 bytes, expected 8 for FP32\[1, 2\]"),
        (bytes(8), b"", FEW), (bytes(8), bytes(8), MANY), (bytes(8), b"\2\0\0\0a", CUT),
        (bytes(8), b"\2\0\0\0ab\0", "t: incomplete string length indicator"),
    ],
)  # fmt: skip
def test_initial_states_in_files(tmp_path: Path, numbers: bytes, text: str, refused: str) -> None:
    states = """
      state { input_name: "A" output_name: "B" data_type: TYPE_FP32 dims: [ 2 ]
              initial_state { name: "a" data_type: TYPE_FP32 dims: [ 2 ] data_file: "n" } }
      state { input_name: "C" output_name: "D" data_type: TYPE_STRING dims: [ 1 ]
              initial_state { name: "c" data_type: TYPE_STRING dims: [ 1 ] data_file: "t" } }"""
    files = {"1/model.py": model(REPORT), "config.pbtxt": 'backend: "python"' + config(corrid("INT32") + states)}
    for name, content in {**files, "initial_state/n": numbers, "initial_state/t": text}.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with bls.ModelRepository(tmp_path) as repository:
        if refused:
            with pytest.raises(bls.ConfigError, match=refused):
                repository.load("m")
            return
        repository.load("m")
        assert send(repository, 1, 4, START).error is None
        ((_, _, inputs, *_),) = gates.logged()[-1]
        assert [inputs[name][0] for name in "AC"] == [[[0.0, 1.0]], [[b"ab"]]]


def test_a_circle_through_a_sequence_is_found(repo: bls.ModelRepository) -> None:
    repo.define("m", model('''
def execute(self, requests):
    if len(requests) > 1:
        return [pb.InferenceResponse(error=pb.TritonError("unexpected batch"))] * len(requests)
    request = requests[0]
    again = ask_row("m", 1, correlation_id=request.correlation_id()).exec()
    return [pb.InferenceResponse(error=again.error())]
'''), config(corrid("UINT64"), 1, count=2))  # fmt: skip
    assert "circular BLS: m -> m" in message(send(repo, 1, 7, START))


def test_a_second_sequence_from_inside_the_first_takes_another_instance(repo: bls.ModelRepository) -> None:
    repo.define("m", model('''
def execute(self, requests):
    request = requests[0]
    if request.correlation_id() == 7:
        again = ask_row("m", 5, correlation_id=8, flags=3).exec()
        return [pb.InferenceResponse(again.output_tensors(), again.error())]
    return [reply(6)]
'''), config(corrid("UINT64"), 1, count=2))  # fmt: skip
    response = send(repo, 1, 7, START)
    assert response.error is None, message(response)
    assert response["Y"].as_numpy().item() == 6


def test_an_unloaded_model_answers_what_waits_for_a_slot(repo: bls.ModelRepository) -> None:
    repo.define("m", model(REPORT), config(corrid("UINT64"), 1))
    first = Caller(send, repo, -1, 11, START | END)
    gates.pass_gate("held")
    waits = Caller(send, repo, 2, 12, START | END)
    until(lambda: queued(repo, "m") == 1)
    gone = Caller(repo.unload, "m")
    gates.open_gate("go")
    assert first.result().error is None
    assert waits.result().error is None
    gone.result()
    assert not repo.ready("m")


def test_a_null_request_is_not_seen_again(repo: bls.ModelRepository) -> None:
    source = model('''
def initialize(self, args):
    self.seen = {}

def execute(self, requests):
    if len(requests) == 1 and not gates.counts["together"]:
        gates.open_gate("first")
        gates.pass_gate("go")
    gates.counts["together"] += len(requests) > 1
    out = []
    for r in requests:
        key = r.correlation_id()
        self.seen[key] = self.seen.get(key, 0) + 1
        if not key or self.seen[key] < number(r):
            r.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            out.append(None)
        else:
            out.append(reply(self.seen[key]))
    return out
''')  # fmt: skip
    repo.define("m", source, config("iterative_sequence: true"))
    # Once the first has gone, the second leaves an empty slot before it.
    callers = [Caller(repo.infer, "m", row(2))]
    gates.pass_gate("first")
    callers.append(Caller(repo.infer, "m", row(5)))
    until(lambda: queued(repo, "m") == 1)
    gates.open_gate("go")
    assert [c.result()["Y"].as_numpy().item() for c in callers] == [2, 5]


IDLE = 10

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "run", "run", "cancel", "time"]),
        st.integers(1, 5),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


# A sequence has ended and its steps still wait: another one of its ID has another slot, and may be faster.
@example(
    places=1,
    slots=2,
    events=[
        ("step", 2, True, True), ("step", 2, True, False), ("step", 2, False, False), ("run", 1, False, False),
        ("run", 2, False, False),
    ],
)  # fmt: skip
@example(
    places=1,
    slots=2,
    events=[("step", 2, True, True), ("step", 2, True, False), ("cancel", 1, False, False), ("step", 2, False, False)],
)
@given(st.integers(1, 2), st.integers(1, 2), EVENTS)
def test_slots_are_given_fairly_and_come_back(
    places: int, slots: int, events: list[tuple[str, int, bool, bool]]
) -> None:
    slot_of: dict[SequenceStep, Slot] = {}
    table = Sequences(places, slots, IDLE, lambda step, slot: slot_of.__setitem__(step, slot))
    everything = [slot for place in table.slots.values() for slot in place]
    waiting: list[SequenceStep] = []
    ran: list[SequenceStep] = []
    gone: list[SequenceStep] = []
    came: list[SequenceStep] = []
    goes_on: list[tuple[SequenceStep, SequenceStep]] = []  # two steps of one sequence
    now = 100

    def run(slot: Slot) -> None:
        step = table.front(slot)
        if step is None:
            return
        assert slot_of[step] is slot
        slot.queue.popleft()
        waiting.remove(step)
        ran.append(step)
        if step.end:
            table.release(slot)

    def forget_dropped() -> None:
        for step in table.dropped:
            waiting.remove(step)
        table.dropped = []

    for what, number, first, second in events:
        if what == "step":
            step = SequenceStep(object(), number, second, since=now)
            if table.enter(step, first, now):
                waiting.append(step)
                if not first:
                    goes_on.append((next(s for s in reversed(came) if s.sequence == number), step))
                came.append(step)
            else:
                assert not first
        elif what == "run":
            run(everything[number % len(everything)])
        elif what == "cancel" and waiting:
            step = waiting.pop(number % len(waiting))
            step.gone = True
            gone.append(step)
        elif what == "time":
            now += number
            for slot in table.reap(now):
                table.front(slot)
        forget_dropped()
        # What has a slot waits in it, and each slot serves one sequence at a time.
        for slot in everything:
            steps = [s for s in slot.queue if s is not None]
            assert len({s.sequence for s in steps}) <= 1
            assert not any(s.end for s in steps[:-1])

    # However it went, time and work give every slot back, and everything is served or dropped.
    for _ in range(len(waiting) + len(gone) + 10):
        now += IDLE
        table.reap(now)
        for slot in everything:
            while any(s is not None for s in slot.queue):
                before = len(slot.queue), len(ran)
                run(slot)
                forget_dropped()
                assert (len(slot.queue), len(ran)) != before
            table.front(slot)
            forget_dropped()
    assert waiting == []
    # Nothing ran twice; a sequence kept its slot, and what had a slot ran in the order in which it came.
    assert len(set(map(id, ran))) == len(ran)
    for step, following in goes_on:
        assert following not in slot_of or slot_of[step] is slot_of[following]
    for slot in everything:
        for number in range(1, 6):
            order = [came.index(s) for s in ran if slot_of[s] is slot and s.sequence == number]
            assert order == sorted(order)
    free = set()
    for n in range(100, 100 + len(everything)):  # as many new sequences as slots find one at once
        step = SequenceStep(object(), n)
        assert table.enter(step, True, now)
        free.add(slot_of[step])
    assert free == set(everything)
