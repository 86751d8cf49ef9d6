from __future__ import annotations

from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.profiling import Comparison
from bls_notebook.profiling.dependences import proof
from tests.profiling.simulated import Model, simulate_times

SLEEPER = """\
%%tritonmodel sleeper --input "IN FP32 [-1]" --output "OUT FP32 [-1]"
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
CALLS = """x = pb_utils.get_input_tensor_by_name(requests[0], "IN")
        for name in ("sleeper", "other"):
            call = pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUT"], inputs=[x])
            assert not call.exec().has_error()"""
CALLER = SLEEPER.replace("sleeper", "caller").replace("time.sleep(0.02)", CALLS)


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_comparison_says_why_and_draws_both(sender, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_times(monkeypatch, {"sleeper": Model([20_000_000])})
    sender(SLEEPER)
    shown = sender("found = %blsprofile sleeper IN=[1.0] -n 3 --repeat 1 --instances 1, 2 --verify\nfound")
    assert shown.success
    found = shown.value
    assert isinstance(found, Comparison)
    assert (found.verdict.cause, found.verdict.model) == ("queue", "sleeper")
    [bundle] = shown.bundles
    text = words(bundle["text/plain"])
    assert text.startswith("sleeper 3 requests, exec against async_exec; 1 run of each, medians")
    assert "2 requests queued on the one instance of `sleeper` for" in text
    assert "exec, one after the other" in text
    assert "verified: with" in text
    assert '<div class="bls-session-verdict">' in bundle["text/html"]
    assert "<code>sleeper</code>" in bundle["text/html"]
    assert [s.count for s in found.settings] == [0, 1, 2]
    inside = sender("found, [found.gathered], {'a': found.gathered.statistics()}").text
    assert "Comparison(model='sleeper'" in inside
    assert len(inside) < 1000
    groups = bls.current_repository().config("sleeper").instance_group
    assert sum(group.count for group in groups) == 1


@pytest.mark.slow
def test_calls_that_could_overlap(sender, monkeypatch) -> None:
    for model in (SLEEPER, SLEEPER.replace("sleeper", "other"), CALLER):
        sender(model)
    shown = sender("found = %blsoverlap caller IN=[1.0] --repeat 1\nfound")
    assert "one after the other. No dependence between them was seen" in words(shown.text)
    assert "the code to write, in Cell In[" in words(shown.text)
    assert "calls.append(call.async_exec())" in shown.text
    assert "calls.append(call.async_exec())" in shown.html
    assert "Proven" not in shown.text
    before = host_of(bls.current_repository()).find("caller")
    monkeypatch.setattr(proof, "ratio", lambda turns: 2.0)  # a busy machine may hide the gain
    monkeypatch.setattr(proof, "relative_error", lambda turns: 0.0)
    applied = sender("found = %blsoverlap caller IN=[1.0] --apply --repeat 3\nfound")
    assert applied.success
    assert "Proven: equal answers on 4 runs" in words(applied.text)
    assert "run that cell to put it into service" in words(applied.text)
    cell = sender.shell.rl_next_input
    assert cell.startswith(CALLER.splitlines()[0] + "\n")
    assert host_of(bls.current_repository()).find("caller") is before
    shown = sender(cell)
    assert "changed since the last definition" in shown.text
    again = sender("%blsoverlap caller IN=[1.0] --apply --repeat 1")
    assert "no change is made, as there is nothing to gain" in words(again.text)


BRANCH = """first = pb_utils.InferenceRequest(
            model_name="sleeper", requested_output_names=["OUT"], inputs=requests[0].inputs()
        ).exec()
        if len(first.output_tensors()) > 9:
            return []
        pb_utils.InferenceRequest(
            model_name="sleeper", requested_output_names=["OUT"], inputs=requests[0].inputs()
        ).exec()"""


def test_calls_of_a_cell_of_which_it_is_unknown_whether_they_are_independent_are_not_changed(sender) -> None:
    for model in SLEEPER.replace("time.sleep(0.02)", ""), CALLER.replace(CALLS, BRANCH):
        sender(model)
    shown = words(sender("%blsoverlap caller IN=[1.0] --apply --repeat 1").text)
    assert "is unknown: line 13 was never reached" in shown
    assert "no change is made, as which calls are independent is unknown" in shown


BATCHING = """\
%%tritonmodel caller --config batches
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        call = pb_utils.InferenceRequest(
            model_name="sleeper", requested_output_names=["OUT"], inputs=request.inputs()
        )
        return pb_utils.InferenceResponse((await call.async_exec()).output_tensors())
"""


@pytest.mark.slow
def test_a_cell_that_serves_a_batch_one_by_one_is_changed(sender) -> None:
    io = "input {name: 'IN', data_type: TYPE_FP32, dims: 1} output {name: 'OUT', data_type: TYPE_FP32, dims: 1}"
    sender.shell.user_ns["batches"] = f"max_batch_size: 4 {io} dynamic_batching {{max_queue_delay_microseconds: 50000}}"
    for model in SLEEPER.replace("sleeper", "sleeper --instances 4", 1).replace("[-1]", "[-1,-1]"), BATCHING:
        sender(model)
    shown = sender("found = %blsoverlap caller IN=[[1.0]] --repeat 1\nfound")
    assert "one after the other (line 7)" in words(shown.text)
    assert "7 - return [await self.answer(request) for request in requests]" in words(shown.text)
    assert shown.value.code.source.startswith("import asyncio\n")


def test_the_smallest_setting(sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_times(monkeypatch, {"sleeper": Model([20_000_000])})
    sender(SLEEPER)
    file = tmp_path / "changes.pbtxt"
    shown = sender(f"found = %blstune sleeper IN=[1.0] -n 2 --repeat 1 --save {file}\nfound")
    assert "With 2 instances of `sleeper`, 2 requests at once took" in words(shown.text)
    assert "What to change in config.pbtxt" in shown.html
    assert "instance_group [{ count: 2 }]" in file.read_text()
    refused = sender("%blstune sleeper IN=[1.0] --save x.json")
    assert "%blstune: --save: got 'x.json', expected a name that ends with .pbtxt" in refused.stderr


def test_save_and_a_verification_of_nothing(sender, tmp_path: Path) -> None:
    file = tmp_path / "c.json.gz"
    shown = sender(f"kept = %blsprofile times IN=images -n 1 --repeat 1 --verify --save {file}")
    assert shown.value is None
    assert "saved to c.json.gz" in shown.text
    assert "--verify: nothing to run" in shown.text
    assert bls.open_file(file) == sender("kept").value
    with pytest.raises(ValueError, match="not a file that"):
        bls.open_file(__file__)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "%blsprofile: "),
        ("times IN=images --instances 1,x", "--instances: got '1,x', expected counts from 1 to 64"),
        ("times IN=images --instances 0", "--instances: got '0', expected counts from 1 to 64"),
        ("times IN=images -n 0", "-n: got '0', expected a whole number from 1"),
        ("times IN=images --repat 3", "unknown option '--repat'; did you mean --repeat?"),
        ("times IN=nothing", "%blsprofile: input IN"),
        ("times IN=images --save no/such/a.json", "--save: got 'no/such/a.json', expected a file in a folder"),
        ("times IN=images --save ~nobody-/a.json", "--save: got '~nobody-/a.json', expected a file in a folder"),
    ],
)
def test_a_bad_argument_gets_one_line(sender, line: str, message: str) -> None:
    failed = sender(f"%blsprofile {line}")
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert "'nobody' is not loaded" in sender("%blsprofile nobody IN=images").text


def test_a_cell_is_profiled(sender, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    shown = sender(
        f"%%blsprofile --into seen --save {file}\n"
        "import asyncio, bls_notebook as bls\nrepo = bls.current_repository()\n"
        "answers = await asyncio.gather(*(repo.infer_async('times', {'IN': images}) for _ in range(4)))\n"
        "len(answers)"
    )
    assert shown.value == 4
    assert "requests 4" in words(shown.text)
    assert "times" in shown.html
    assert len(sender("seen.record.spans").value) == 4
    assert len(bls.open_file(file).spans) == 4
    assert sender("seen").text.startswith("In [3]")


def test_a_cell_that_raises_shows_what_was_recorded(sender) -> None:
    failed = sender("%%blsprofile --into seen\nanswer = %bls times IN=images\nanswer.nothing")
    assert isinstance(failed.error, AttributeError)
    assert "requests 1" in words(failed.text)
    assert "answer.nothing" in failed.stdout
    assert "blsprofile.py" not in failed.stdout
    assert not sender("seen").value.running


def test_a_limit_and_a_file_that_cannot_be_written_lose_nothing(sender, tmp_path: Path) -> None:
    folder = tmp_path / "few.json"
    folder.mkdir()
    shown = sender(
        f"%%blsprofile --limit 2 --into few --save {folder} -q\nfor _ in range(5):\n    %bls times IN=images -q\n40 + 2"
    )
    assert shown.value == 42
    assert "Is a directory" in shown.text
    record = sender("few.record").value
    assert (len(record.spans), record.dropped) == (2, 3)


@pytest.mark.slow
def test_a_cell_says_why_and_which_calls_could_have_begun_earlier(sender) -> None:
    for model in (SLEEPER, SLEEPER.replace("sleeper", "other"), CALLER):
        sender(model)
    shown = words(sender("%%blsprofile\n%bls caller IN=[1.0] -q").text)
    assert "One request took" in shown
    assert "`caller` waits for `sleeper`, then for `other`: `%blsoverlap caller …` finds out" in shown
    shown = sender("found = %blsoverlap caller IN=[1.0]\nfound")
    assert "could have run here" in shown.text
    assert "could have run here" in shown.html
    record = sender("found.written").value
    assert [span.kind for span in record.spans] == ["sync"] * 3
    caller, other = record.ghosts
    assert (caller.span, other.span) == (record.spans[0].id, record.spans[2].id)
    assert other.begin < record.spans[1].ended


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--limt 3", "%%blsprofile: unknown option '--limt'; did you mean --limit?"),
        ("--limit 0", "%%blsprofile: --limit: got '0', expected a whole number from 1."),
        ("times", "%%blsprofile: unexpected argument 'times'."),
    ],
)
def test_a_bad_argument_of_a_cell_gets_one_line_and_runs_nothing(cells, options: str, message: str) -> None:
    failed = cells(f"%%blsprofile {options}\nran = True")
    assert failed.stderr.startswith(f"UsageError: {message}")
    assert failed.stderr.count("\n") == 1
    assert "ran" not in cells.shell.user_ns


def test_help(cells) -> None:
    assert "why async helped" in words(cells("%blsprofile -h").stdout)
    assert "--verify" in cells.shell.find_line_magic("blsprofile").__doc__
    assert "--limit N" in cells.shell.find_cell_magic("blsprofile").__doc__


def test_models_inputs_and_options_complete(sender, complete) -> None:
    assert complete("%blsprofile ti") == ["%blsprofile times"]
    assert complete("%blsprofile times I") == ["%blsprofile times IN="]
    assert complete("%blsprofile times IN=images --ver") == ["%blsprofile times IN=images --verify"]
    assert complete("%%blsprofile --li") == ["%%blsprofile --limit"]
