"""Ensembles and warm-ups that are refused: here in the words of the server, or of its log."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bls_notebook.engine.errors import BLSError
from bls_notebook.shipping.servers.server_programs import TritonServerError
from bls_notebook.shipping.servers.tritonserver import TritonRequestError
from tests.conformance.sides import SECONDS, Sides, normal

pytestmark = pytest.mark.triton
Config = dict[str, Any]
NAME = "pipeline"  # goes on as it is where another configuration of it is refused
POLLED = re.compile(r"Poll failed for model directory 'pipeline': (.*?)\"?$", re.MULTILINE)


def tensors(*names: str) -> list[Config]:
    return [{"name": name, "data_type": "TYPE_FP32", "dims": [-1]} for name in names]


def ensemble(*steps: tuple[str, str], outputs: str = "OUT", inputs: str = "IN", **more: Any) -> Config:
    """Steps by the tensors that they read and write."""
    made = [
        {
            "model_name": "add_sub",
            "model_version": -1,
            "input_map": {f"INPUT{n}": name for n, name in enumerate(reads.split())},
            "output_map": {f"OUTPUT{n}": name for n, name in enumerate(writes.split())},
        }
        for reads, writes in steps
    ]
    return {
        "platform": "ensemble",
        "input": tensors(*inputs.split()),
        "output": tensors(*outputs.split()),
        "ensemble_scheduling": {"step": made},
        **more,
    }


ENSEMBLES = {
    "an output that no step writes": ensemble(("IN IN", "OUT"), outputs="OUT MORE"),
    "an input that no step reads": ensemble(("IN IN", "OUT"), inputs="IN MORE"),
    "an output that needs what is not there": ensemble(("IN x", "OUT")),
    "a tensor that is not used": ensemble(("IN IN", "OUT more")),
    "a tensor that is written twice": ensemble(("IN IN", "OUT OUT")),
    "no input map": ensemble(("IN IN", "x"), ("", "OUT")),
    "no output map": ensemble(("IN IN", "OUT"), ("IN IN", "")),
    "no step": ensemble(),
    "an instance group": ensemble(("IN IN", "OUT"), instance_group=[{"count": 1}]),
}


@pytest.mark.parametrize("case", ENSEMBLES)
def test_an_ensemble(sides: Sides, case: str) -> None:
    before = len(sides.real.log())
    with pytest.raises(TritonRequestError):
        sides.real.load(NAME, ENSEMBLES[case])
    found = POLLED.search(sides.real.log()[before:])
    assert found is not None, sides.real.log()[before:]
    with pytest.raises(BLSError) as info:
        sides.here.load(NAME, ENSEMBLES[case])
    assert str(info.value).startswith(f"model '{NAME}': {found[1]}")


def test_a_warm_up_that_fails(sides: Sides) -> None:
    sample = {
        "name": "cold",
        "batch_size": 1,
        "inputs": {"DO": {"data_type": "TYPE_STRING", "dims": [1], "zero_data": True}},
    }
    text = {"data_type": "TYPE_STRING", "dims": [1]}
    config = {
        "backend": "python",
        "input": [{"name": "DO", **text}],
        "output": [{"name": "REPORT", **text}],
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "model_warmup": [sample],
    }
    with pytest.raises(TritonServerError) as there:
        sides.on_real(lambda: sides.real.load("script", config, wait=SECONDS), again=1)
    if not isinstance(there.value, TritonRequestError) and "Signal (11)" in sides.real.log():
        sides.real.stop(graceful=False)
        sides.real.start()
        pytest.xfail("At random, more often on a busy machine, the server crashes while it unloads this model.")
    with pytest.raises(BLSError) as here:
        sides.here.load("script", config)
    assert normal(here.value.reason) == normal(str(there.value))  # type: ignore[attr-defined]
    said = "failed to run warmup sample 'cold': Failed to process the request(s) for model 'script_0"
    assert said in str(there.value)
    assert said in str(here.value)
