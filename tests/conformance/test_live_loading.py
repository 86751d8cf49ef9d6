"""Loads with files in place of those on disk: what a server ignores, and the warning here."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.conformance.sides import Sides

pytestmark = pytest.mark.triton
OUTPUT = [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}]
CODE = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([{}], np.int32))]) for _ in requests]
"""


def test_files_are_ignored_if_the_configuration_is_the_same(sides: Sides) -> None:
    def load(number: int, parameter: str) -> tuple[int, bool]:
        """Load both; return the number of the code that the server runs, and whether there is a warning here."""
        parameters = {"p": {"string_value": parameter}}
        config = json.dumps({"backend": "python", "output": OUTPUT, "parameters": parameters})
        files = {"file:1/model.py": CODE.format(number).encode()}
        sides.on_real(lambda: sides.real.load("sent", config, files))
        record = sides.here.load("sent", config, files)
        assert sides.ask_here("sent", {}).outputs["OUT"] == np.array([number])
        return int(sides.ask_real("sent", {}).outputs["OUT"][0]), any("a server ignores" in w for w in record.warnings)

    try:
        assert load(1, "x") == (1, False)
        assert load(2, "x") == (1, True)
        assert load(3, "y") == (3, False)
    finally:
        sides.real.unload("sent")
        sides.here.unload("sent")
