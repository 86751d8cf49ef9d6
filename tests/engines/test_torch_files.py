"""Files that hold no TorchScript, models that do not fit their configuration, and a missing PyTorch."""

from __future__ import annotations

import io
import sys
import zipfile
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from tests.engines import torch_modules as modules  # noqa: E402 - it needs PyTorch
from tests.engines.torch_modules import load, scripted, tensor  # noqa: E402

X = np.array([1, 2, 3], np.float32)


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"m/{name}", content)
    return buffer.getvalue()


def damaged() -> bytes:
    whole = bytearray(scripted(torch.nn.Linear(3, 2)))
    at = whole.index(b"PK\x03\x04", 400)
    whole[at : at + 200] = bytes(200)
    return bytes(whole)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"", "the file is empty"),
        (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "fetch it: git lfs pull"),
        (lambda: b"<html>Not Found</html>", "the file begins with b'<html>Not Found<' and is not an archive"),
        (lambda: b"PK\x03\x04" + bytes(100), "and is not an archive, expected TorchScript"),
        (lambda: pickled(torch.nn.Linear(3, 2).state_dict()), "the file has weights or a module written by"),
        (lambda: pickled({"epoch": 3, "model": torch.nn.Linear(3, 2).state_dict()}),
         "create the module, load the file"),
        (lambda: pickled(torch.nn.Linear(3, 2)), "weights or a module written by torch.save"),
        (lambda: zipped(archive_format=b"pt2"), "an archive of torch.export (.pt2), expected TorchScript"),
        (lambda: zipped(note=b"hello"), "the file is another kind of zip archive (m/note), expected TorchScript"),
        (lambda: zipped(**{"data.pkl": b"\x00 no pickle"}), "the file has weights"),
        (damaged, "failed to load model 'm': model.pt: "),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_named(repo: bls.ModelRepository, make: Any, message: str) -> None:
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, make())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.reason.startswith("load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: ")


def test_a_missing_file(repo: bls.ModelRepository) -> None:
    with pytest.raises(bls.ModelLoadError) as caught:
        repo.load("m", {"platform": "pytorch_libtorch"}, {"file:1/weights.pt": b""})
    assert "Unavailable: unable to find '" in caught.value.reason
    assert "model.pt' for model instance 'm'" in caught.value.reason


def test_another_file_name(repo: bls.ModelRepository) -> None:
    config = {"backend": "pytorch", "default_model_filename": "a.pt", "input": [tensor("x")], "output": [tensor("y")]}
    repo.load("m", config, {"file:1/a.pt": scripted(modules.Identity())})
    assert repo.infer("m", {"x": X}).error is None


@pytest.mark.parametrize(
    ("data", "config", "message"),
    [
        (modules.TakesNumber, {}, "An input of type 'int' was detected in the model."),
        (modules.TakesOptional, {}, "An input of type 'Optional[Tensor]' was detected in the model."),
        (modules.TwoDicts, {}, "Multiple inputs of kind DictType were detected."),
        (modules.Identity, {"platform": "torch_aoti"}, "platform torch_aoti (archives compiled"),
        (
            modules.Identity,
            {
                "batch_input": [
                    {
                        "kind": "BATCH_ELEMENT_COUNT",
                        "target_name": ["n"],
                        "data_type": "TYPE_FP32",
                        "source_input": ["x"],
                    }
                ]
            },
            "batch_input: not supported for pytorch models in the notebook",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_load(
    repo: bls.ModelRepository, data: Any, config: dict[str, Any], message: str
) -> None:
    config = {"default_model_filename": "model.pt", **config}
    with pytest.raises(bls.BLSError) as caught:
        load(repo, scripted(data()), **config)
    assert message in str(caught.value)


def test_a_module_without_forward(repo: bls.ModelRepository) -> None:
    class Other(torch.nn.Module):  # type: ignore[misc]
        @torch.jit.export
        def other(self, x):  # type: ignore[no-untyped-def]
            return x

    with pytest.raises(bls.ModelLoadError, match="Method 'forward' is not defined"):
        load(repo, scripted(Other()))


def test_without_pytorch_one_line_says_what_to_install(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, b"any")
    assert str(caught.value).endswith('install it: pip install "bls_notebook[torch]"')
    assert "\n" not in str(caught.value)
