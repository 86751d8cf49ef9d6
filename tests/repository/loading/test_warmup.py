"""Warm-up: what the samples of `model_warmup` are, and that a failing one fails the load."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.repository.models import HEAD, write

SEES = f"""{HEAD}
import json

class TritonPythonModel:
    def initialize(self, args):
        self.seen = []

    def execute(self, requests):
        out = []
        for r in requests:
            arrays = {{t.name(): t.as_numpy() for t in r.inputs()}}
            text = np.array([json.dumps(self.seen)], object)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
            self.seen.append([len(requests), {{n: [str(a.dtype), list(a.shape), str(a.tolist())]
                                               for n, a in sorted(arrays.items())}}])
        return out
"""
OUT = 'output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]\n'
IN = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]\n'
TEXT = 'input [ { name: "S" data_type: TYPE_STRING dims: [ 2 ] } ]\n'


def sample(data: str, more: str = "batch_size: 1", name: str = "IN", kind: str = "FP32") -> str:
    return (
        f'model_warmup {{ name: "w" {more} inputs {{ key: "{name}" '
        f"value {{ data_type: TYPE_{kind} dims: [ 2 ] {data} }} }} }}\n"
    )


def seen(repo: bls.ModelRepository, inputs: dict[str, Any]) -> Any:
    response = repo.infer("m", inputs)
    assert response.error is None, response.error.message()
    return json.loads(response["OUT"].as_numpy().reshape(-1)[0])


def test_samples_run_as_often_as_they_say_on_every_instance(
    repo: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "bls_notebook")
    twice = sample("zero_data: true", "batch_size: 1 count: 2")
    skipped = sample("zero_data: true", "batch_size: 0")
    repo.define("m", SEES, IN + OUT + twice + skipped)
    told = "model 'm' instance m_0 is running warmup sample 'w' for iteration "
    assert [m for m in caplog.messages if "warmup" in m] == [f"{told}1", f"{told}2"]
    zeros = [1, {"IN": ["float32", [2], "[0.0, 0.0]"]}]
    assert seen(repo, {"IN": np.zeros(2, np.float32)}) == [zeros, zeros]
    repo.define("m", SEES, IN + OUT + sample("zero_data: true") + "instance_group [ { count: 3 kind: KIND_CPU } ]")
    assert repo.statistics("m")["model_stats"][0]["execution_count"] == 3
    with pytest.raises(bls.ModelLoadError):
        repo.define("m", FAILS.replace("BODY", "raise ValueError"), IN + OUT + sample("zero_data: true"))
    assert len(seen(repo, {"IN": np.zeros(2, np.float32)})) == 1  # the version that served goes on


def test_a_batch_is_that_many_requests_of_one_row(repo: bls.ModelRepository) -> None:
    config = "max_batch_size: 4\n" + IN + OUT.replace("-1", "1") + sample("random_data: true", "batch_size: 3")
    repo.define("m", SEES, config)
    found = seen(repo, {"IN": np.zeros((1, 2), np.float32)})
    assert [[count, tensors["IN"][:2]] for count, tensors in found] == [[3, ["float32", [1, 2]]]] * 3
    assert len({tensors["IN"][2] for _, tensors in found}) == 1  # of one sample, as on Triton
    row = repo.statistics("m")["model_stats"][0]
    assert (row["inference_count"], row["execution_count"]) == (4, 2)


def test_a_control_of_a_sequence_has_the_dimension_of_the_batch_too(
    repo: bls.ModelRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on tritonserver 2.51, where each of these is seen as (1, 2)."""
    both = sample("zero_data: true").removesuffix("}\n") + (
        'inputs { key: "START" value { data_type: TYPE_INT32 dims: [ 2 ] zero_data: true } } }\n'
    )
    config = f"""max_batch_size: 4 {IN} {OUT} {both}
sequence_batching {{ control_input {{ name: "START" control {{
  kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} }} }}"""
    tells = SEES.replace("text =", "print(sorted((n, a.shape) for n, a in arrays.items())); text =")
    repo.define("m", tells, config)
    assert capsys.readouterr().out == "[('IN', (1, 2)), ('START', (1, 2))]\n"


def write_files(disk: bls.ModelRepository, config: str, **files: bytes) -> None:
    folder = write(disk.paths[0], "m", SEES, config).parent / "warmup"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_data_of_files(disk: bls.ModelRepository) -> None:
    words = b"".join(struct.pack("<I", len(w)) + w for w in (b"ab", b"cde"))
    both = sample('input_data_file: "numbers"').replace(
        "} } }", '} } inputs { key: "S" value { data_type: TYPE_STRING dims: [ 2 ] input_data_file: "words" } } }'
    )
    write_files(disk, IN + TEXT + OUT + both, numbers=np.array([1, 2], np.float32).tobytes(), words=words)
    disk.load("m")
    inputs = {"IN": np.zeros(2, np.float32), "S": np.array([b"", b""], np.object_)}
    expected = {"IN": ["float32", [2], "[1.0, 2.0]"], "S": ["object", [2], "[b'ab', b'cde']"]}
    assert seen(disk, inputs) == [[1, expected]]
    (disk.paths[0] / "m" / "warmup" / "numbers").write_bytes(b"123")
    with pytest.raises(bls.ModelLoadError, match="numbers has 3 bytes, expected 8"):
        disk.reload("m")
    for data in ("zero_data: true", "random_data: true"):  # text is empty where no file gives it
        disk.define("m", SEES, TEXT + OUT + sample(data, name="S", kind="STRING"))
        assert seen(disk, {"S": inputs["S"]}) == [[1, {"S": ["object", [2], "[b'', b'']"]}]]


WORDS = b"".join(struct.pack("<I", len(word)) + word for word in (b"ab", b"cde"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (WORDS[:6], "[request id: <id_unknown>] expected 2 string elements {}, got 1;"),
        (WORDS * 2, "[request id: <id_unknown>] unexpected number of string elements 3 {}, expecting 2;"),
        (WORDS + b"xx", "[request id: <id_unknown>] incomplete string length indicator {}, expecting 4 bytes but "),
        (WORDS[:-1], "failed to run warmup sample 'w': incomplete string data for inference input 'IN', expecting "
         "string of length 3 but only 2 bytes available; ;"),
    ],
)  # fmt: skip
def test_a_file_of_text_has_the_elements_of_its_dims(disk: bls.ModelRepository, data: bytes, reason: str) -> None:
    """In the words of tritonserver 2.51."""
    config = TEXT.replace('"S"', '"IN"') + OUT + sample('input_data_file: "f"', kind="STRING")
    write_files(disk, config, f=data)
    with pytest.raises(bls.ModelLoadError) as caught:
        disk.load("m")
    assert reason.format("for inference input 'IN' for model 'm'") in caught.value.reason


ASYNC = SEES.replace("    def execute", "    async def execute")
STREAMS = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(["a"], object))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_async_and_decoupled_models(repo: bls.ModelRepository) -> None:
    repo.define("m", ASYNC, IN + OUT + sample("zero_data: true"))
    assert len(seen(repo, {"IN": np.zeros(2, np.float32)})) == 1
    policy = "model_transaction_policy { decoupled: true }\n"
    repo.define("s", STREAMS, IN + OUT + policy + sample("zero_data: true"))
    assert repo.statistics("s")["model_stats"][0]["execution_count"] == 1
    repo.unload("s")


FAILS = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        BODY

    def finalize(self):
        import tests.repository.loading.test_warmup as here
        here.finalized.append(1)
"""
finalized: list[int] = []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no good')", "no good"),  # the real server never ends here
        ("return [pb_utils.InferenceResponse([], pb_utils.TritonError('sorry')) for _ in requests]", "sorry"),
        ("return None", "was not answered"),
    ],
)
def test_a_sample_that_fails_fails_the_load(repo: bls.ModelRepository, body: str, words: str) -> None:
    finalized.clear()
    with pytest.raises(bls.ModelLoadError) as failure:
        repo.define("m", FAILS.replace("BODY", body), IN + OUT + sample("zero_data: true"))
    assert words in str(failure.value)
    assert "\n" not in str(failure.value)
    assert failure.value.reason.startswith(
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: "
        "failed to run warmup sample 'w': "
    )
    assert not repo.ready("m")
    assert finalized == [1]
