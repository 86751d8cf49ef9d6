"""Seeds of global generators and environment variables that other instances or models see here, and not on a server."""

from __future__ import annotations

import pytest

from tests.checking.conftest import CONFIG, MODEL, Check, model

TWO = CONFIG + "instance_group [ { count: 2 } ]\n"
SEEDS = MODEL.replace("    def execute", "    def initialize(self, args):\n        LINE\n\n    def execute", 1)
NUMPY, DRAW = "np.random.seed(0)", "np.random.rand()"
ENVIRON = 'os.environ["GPU"] = args["model_instance_device_id"]'


def source(line: str = "pass", value: str = "pass") -> str:
    draws = SEEDS.replace("        return pb_utils.get", "        VALUE\n        return pb_utils.get")
    head = "import os, random, torch\nimport numpy as np\n"
    return head + draws.replace("LINE", line).replace("VALUE", value)


@pytest.mark.parametrize(
    ("config", "line", "value", "other", "expected"),
    [
        (TWO, NUMPY, DRAW, "", "process-seed"),
        (TWO, "random.seed(1)", "random.shuffle([1])", "", "process-seed"),
        (TWO, "torch.manual_seed(1)", "torch.randn(3)", "", "process-seed"),
        (CONFIG, NUMPY, "pass", source("pass", DRAW), "process-seed"),
        (CONFIG, NUMPY, DRAW, source(NUMPY), "process-seed"),
        (CONFIG, NUMPY, DRAW, "", ""),  # one instance, and no other model draws
        (TWO, NUMPY, "pass", "", ""),  # nothing draws
        (CONFIG, NUMPY, DRAW, source("pass", "random.random()"), ""),
        (TWO, "self.rng = np.random.default_rng(0)", "self.rng.random()", "", ""),
        (TWO, "g = torch.Generator().manual_seed(1)", "torch.rand(3, generator=None)", "", ""),
        (TWO, ENVIRON, "pass", "", "process-environ"),
        (CONFIG, 'os.environ["A"] = "1"', "pass", source('os.environ["A"] = "2"'), "process-environ"),
        (CONFIG, 'os.environ["A"] = "1"', "pass", source("pass", 'os.getenv("A")'), "process-environ"),
        (CONFIG, 'os.environ["A"] = "1"', "pass", source('os.environ["A"] = "1"'), ""),
        (TWO, 'os.environ["TOKENIZERS_PARALLELISM"] = "false"', "pass", source("pass", 'os.getenv("B")'), ""),
        (CONFIG, ENVIRON, "pass", "", ""),
    ],
)
def test_state_of_the_process_that_instances_and_models_share(
    check: Check, config: str, line: str, value: str, other: str, expected: str
) -> None:
    files = model("a", config, source(line, value)) | (model("b", CONFIG, other) if other else {})
    found = [(f.code, f.model, f.line) for f in check(files, "a") if f.code.startswith("process-")]
    assert found == ([(expected, "a", 8)] if expected else [])
