"""What `auto_complete_config` returns, raises or leaves out: the same configuration, or the same refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bls_notebook.engine.errors import BLSError
from bls_notebook.repository.config import to_json
from tests.conformance.sides import Sides, normal, without_newer

pytestmark = pytest.mark.triton
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

X = {"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}
Y = {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(c):
        %s

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros(1, np.float32))]) for _ in requests]
"""
TENSORS = 'input [{name: "X" data_type: TYPE_FP32 dims: [-1]}]\noutput [{name: "Y" data_type: TYPE_FP32 dims: [-1]}]\n'
ALONE = {  # without a config.pbtxt
    "all": "c.add_input(X); c.add_output(Y); c.set_max_batch_size(0); return c",
    "twice": "c.add_input(X); c.add_input(X); c.add_output(Y); c.set_max_batch_size('4'); return c",
    "nothing": "return c",
    "no_return": "c.set_max_batch_size(4)",
    "dict": "return c.as_dict()",
    "no_input": "c.add_input(None); return c",
    "pairs": "c.add_input([('name', 'X')]); return c",
    "no_name": "c.add_input({'data_type': 'TYPE_FP32', 'dims': [-1]}); return c",
    "numpy_size": "c.add_input(X); c.add_output(Y); c.set_max_batch_size(np.int32(4)); return c",
    "other_type": "c.add_input(X); c.add_input({**X, 'data_type': 'TYPE_INT32'}); return c",
    "empty_message": "raise ValueError",
}
CONFIGURED = {  # the tensors, a line, and the body
    "batcher": ("max_batch_size: 4", "c.set_dynamic_batching(); c.set_max_batch_size(8); return c"),
    "smaller": ("max_batch_size: 4", "c.set_max_batch_size(2); return c"),
    "sequences": ("sequence_batching {}", "c.set_dynamic_batching(); return c"),
    "decoupled": ("", "c.set_model_transaction_policy({'decoupled': True}); return c"),
    "coupled": (
        "model_transaction_policy {decoupled: true}",
        "c.set_model_transaction_policy({'decoupled': False}); return c",
    ),
    "replaced": ("max_batch_size: 4", "c._model_config = {}; return c"),
    "no_function": ("", "pass\n\n    auto_complete_config = None"),
}


def test_auto_complete_config(sides: Sides) -> None:
    names = {}
    for case, (config, body) in {**{case: (None, body) for case, body in ALONE.items()}, **CONFIGURED}.items():
        folder = Path(sides.real.repository, f"completes_{case}")
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "model.py").write_text(MODEL % body)
        if config is not None:
            (folder / "config.pbtxt").write_text(f'backend: "python"\n{TENSORS}{config}\n')
        names[folder.name] = None
    for name, refusal in sides.same_loads(names).items():
        if refusal is None:
            got = json.loads(to_json(sides.here.config(name)))
            assert without_newer(got) == without_newer(sides.real.config(name)), name
        else:
            with pytest.raises(BLSError) as info:
                sides.here.load(name)
            assert normal(getattr(info.value, "reason", "")) == normal(refusal), name
