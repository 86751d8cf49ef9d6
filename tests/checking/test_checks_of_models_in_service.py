"""What is found of models that serve, by what they were seen to do."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.extending import host_of
from bls_notebook.repository.modules.module_home import SourcePlace
from bls_notebook.repository.repository import define_cell
from tests.checking.conftest import CONFIG, MODEL
from tests.engine import gates
from tests.engine.harness import until
from tests.repository.conftest import repo

__all__ = ["repo"]

HELD = """import triton_python_backend_utils as pb_utils
from tests.engine import gates


class TritonPythonModel:
    def execute(self, requests):
        gates.open_gate("begun")
        gates.pass_gate("go")
        arrays = [r.inputs()[0].as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each)]) for each in arrays]
"""
BATCHING = CONFIG + "max_batch_size: 8\n"


def queued(repo: bls.ModelRepository, lengths: list[int]) -> None:
    """Have requests wait together while another one is served."""
    gates.reset()
    model = host_of(repo).find("m")
    assert model is not None

    def send(length: int) -> asyncio.Task[bls.Response]:
        return asyncio.create_task(repo.infer_async("m", {"IN": np.zeros((1, length), np.float32)}))

    async def run() -> None:
        first = send(1)
        await asyncio.to_thread(gates.pass_gate, "begun")
        rest = [send(length) for length in lengths]
        await asyncio.to_thread(until, lambda: model.scheduler.pending == len(rest))
        gates.open_gate("go")
        for each in (await first, *[await task for task in rest]):
            assert each.error is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("config", "lengths", "ended", "words"),
    [
        ("", [1, 1, 1, 1], {}, "without `dynamic_batching`"),
        ("dynamic_batching { }", [1, 2, 1, 2], {"shape:IN": 3, "queue": 2}, "another shape of input 'IN'"),
        ("dynamic_batching { }", [1] * 8, {"full": 1, "queue": 1}, ""),
        ("dynamic_batching { preferred_batch_size: [ 1 ] }", [1] * 4, {"preferred": 5}, "preferred size"),
    ],
)
def test_why_requests_were_not_batched(
    repo: bls.ModelRepository, config: str, lengths: list[int], ended: dict[str, int], words: str
) -> None:
    repo.define("m", HELD, BATCHING + config)
    queued(repo, lengths)
    (record,) = repo.statistics_records("m")
    assert (dict(record.ended), record.waited) == (ended, 0 if "full" in ended else 3)
    found = [each.why for each in bls.check("m", repo=repo).findings if each.code == "batch-not-formed"]
    shown = render([record])
    if words:
        assert words in found[0]
        assert "not batched" in shown.text
        assert "hardly any together" in shown.html
    else:
        assert not found
        assert "not batched" not in shown.text


def test_findings_from_seen_requests_and_responses(repo: bls.ModelRepository) -> None:
    source = MODEL.replace("self.of(r))", 'self.of(r).astype("f8"))')
    repo.define("m", source, CONFIG)
    assert bls.check("m", repo=repo).findings == ()
    for number in range(3):
        assert repo.infer("m", {"IN": [1.0]}).error is None
        assert repo.infer("m", {"IN": np.zeros((1, 1), np.float32)}, request_id=f"r{number}").error
    output, refused = sorted(bls.check("m", repo=repo).findings, key=lambda finding: finding.code)
    assert (output.code, refused.code) == ("seen-output", "seen-refused")
    assert "got FP64, the configuration says FP32" in output.what
    assert "3 requests refused: " in refused.what
    assert "[request id" not in refused.what


def test_a_model_that_serves_has_what_it_completed(repo: bls.ModelRepository) -> None:
    completes = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "LACKS", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config
"""
    source = MODEL.replace("class TritonPythonModel:\n", f"class TritonPythonModel:{completes}\n")
    repo.define("m", source, 'backend: "python"')
    (found,) = bls.check(repo=repo).findings
    assert (found.code, found.where) == ("output-never-made", "m/config.pbtxt")
    place = SourcePlace("cell", "Cell In[3]", 2)
    define_cell(repo, "m", f"{source}\ndef f():\n    return undefined\n", None, 1, (), place)
    found = bls.check(repo=repo).findings[0]
    assert (found.code, found.where) == ("code-undefined", f"Cell In[3]:{source.count(chr(10)) + 4}")


def test_profiles_say_it_of_what_happened_while_they_were_on(repo: bls.ModelRepository) -> None:
    repo.define("m", HELD, BATCHING + "dynamic_batching { }")
    queued(repo, [1] * 7)
    with bls.profile() as together:
        queued(repo, [1] * 7)
    with bls.profile() as apart:
        queued(repo, [1, 2] * 4)
    assert together.record.unbatched == ()
    (line,) = apart.record.unbatched
    assert line.startswith("`m`: 9 requests ran in 9 executions")
    assert "another shape of input 'IN'" in line
    assert "another shape" in render(apart.record).text
    assert "another shape" in render(apart.record).html
