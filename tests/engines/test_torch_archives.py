"""Archives of PyTorch (`model.pt2`): names of tensors, errors, and one that is compiled."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from tests.engines.torch_modules import tensor  # noqa: E402 - it needs PyTorch

X = np.array([1, 2, 3], np.float32)
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def many(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "builtins.tuple", "context": "null", "children_spec": list(parts)}


def named(**parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "builtins.dict", "context": json.dumps(list(parts)), "children_spec": list(parts.values())}


class Archive:
    """PyTorch's loader of an archive of ``forward(a, [b], *, scale)``."""

    def __init__(self, device: str = "cpu", dtype: Any = torch.float32) -> None:
        self._device, self._dtype = device, dtype

    def get_metadata(self) -> dict[str, str]:
        return {"AOTI_DEVICE_KEY": self._device}

    def get_call_spec(self) -> list[str]:
        taken, returned = many(many(LEAF, many(LEAF)), named(scale=LEAF)), named(sum=LEAF, pair=many(LEAF, LEAF))
        return [json.dumps([1, taken]), json.dumps([1, returned])]

    def run(self, tensors: list[Any]) -> list[Any]:
        a, b, scale = (each.to(self._dtype) for each in tensors)
        if len(scale) != 3:
            raise RuntimeError("input_handles[2]: unmatched dim value at 0")
        return [a + b, a * scale, scale.sum()]


def load(repo: bls.ModelRepository, data: bytes, **config: Any) -> Any:
    whole = {
        "backend": "pytorch",
        "platform": "torch_aoti",
        "input": [tensor("KWARGS[scale]", dims=(-1,)), tensor("ARGS[0]"), tensor("INPUT__1")],
        "output": [tensor("RESULT[pair][0]"), tensor("OUTPUT__0")],
        "instance_group": [{"kind": "KIND_CPU"}],
        **config,
    }
    return repo.load("m", whole, {"file:1/model.pt2": data})


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {}
    loader = SimpleNamespace(AOTIModelPackageLoader=lambda *_: Archive(**made))
    monkeypatch.setattr(torch._C, "_aoti", loader)
    return made


def ask(repo: bls.ModelRepository, scale: Any = X * 2) -> Any:
    return repo.infer("m", {"KWARGS[scale]": scale, "ARGS[0]": X, "INPUT__1": X * 10})


@pytest.mark.usefixtures("archive")
def test_tensors_have_the_names_of_the_call_specification_or_numbers(repo: bls.ModelRepository) -> None:
    assert load(repo, b"any").warnings == ()
    answer = ask(repo)
    np.testing.assert_array_equal(answer["OUTPUT__0"].as_numpy(), X * 11)
    np.testing.assert_array_equal(answer["RESULT[pair][0]"].as_numpy(), X * X * 2)
    problem = ask(repo, X[:2]).error.message()
    assert problem == 'Inductor model instance "m_0_0" execution failure: input_handles[2]: unmatched dim value at 0'


@pytest.mark.parametrize(("config", "message"), [
    ({"input": [tensor("a")]}, "expects 1 inputs, but model expects 3 inputs. (ARGS[0], ARGS[1][0], KWARGS[scale])"),
    ({"output": [tensor("y")]}, 'Output "y" for model instance "m_0_0" is not found in model output map.'),
    ({"sequence_batching": {}}, "Sequence batching is not supported yet."),
])  # fmt: skip
@pytest.mark.usefixtures("archive")
def test_a_configuration_that_does_not_fit_an_archive_is_refused(
    repo: bls.ModelRepository, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(bls.BLSError) as caught:
        load(repo, b"any", **config)
    assert 'could not be loaded: Failed to create ModelInstanceState for model "m": ' in str(caught.value)
    assert message in str(caught.value)


def test_outputs_of_another_type_and_scalars_are_errors(repo: bls.ModelRepository, archive: dict[str, Any]) -> None:
    load(repo, b"any", output=[tensor("RESULT[pair][1]")])
    assert 'tensor "RESULT[pair][1]" is a scalar which is not supported.' in ask(repo).error.message()
    archive["dtype"] = torch.float64
    load(repo, b"other")
    assert "has datatype TYPE_FP64 but model configuration expects TYPE_FP32." in ask(repo).error.message()


def test_archives_for_a_gpu_and_batches_are_named(repo: bls.ModelRepository, archive: dict[str, Any]) -> None:
    (warning,) = load(repo, b"any", max_batch_size=4).warnings
    assert "each request runs alone; use max_batch_size: 0" in warning
    archive["device"] = "cuda"
    with pytest.raises(bls.ModelLoadError, match=r"model\.pt2 was compiled for cuda"):
        load(repo, b"other")


def test_a_file_that_is_no_archive_is_named(repo: bls.ModelRepository) -> None:
    for data, words in ((b"x" * 99, "is not an archive, expected an archive of AOTI"), (b"", "the file is empty")):
        with pytest.raises(bls.ModelLoadError, match=words):
            load(repo, data)


@pytest.mark.extra  # PyTorch and a compiler of C++ need half a minute
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_archive_runs_and_refuses_other_shapes(repo: bls.ModelRepository, tmp_path: Path) -> None:
    class Pair(torch.nn.Module):
        def forward(self, a, b, *, scale):
            return {"sum": a + b[0], "pair": (a * scale, b[0])}

    examples = torch.zeros(3), [torch.zeros(3)]
    exported = torch.export.export(Pair(), examples, {"scale": torch.zeros(3)})
    file = tmp_path / "model.pt2"
    try:
        torch._inductor.aoti_compile_and_package(exported, package_path=str(file))
    except Exception as error:  # there may be no compiler
        pytest.skip(f"nothing compiles here: {error}")
    load(repo, file.read_bytes())
    answer = ask(repo)
    np.testing.assert_array_equal(answer["OUTPUT__0"].as_numpy(), X * 11)
    np.testing.assert_array_equal(answer["RESULT[pair][0]"].as_numpy(), X * X * 2)
    assert "unmatched dim value at 0, expected: 3, but got: 2" in ask(repo, X[:2]).error.message()
