"""Small PyTorch modules for the tests, as the bytes of a model.pt."""
# No postponed annotations here: TorchScript reads them.

import io
import warnings
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 - TorchScript's own

import torch
from torch import Tensor, nn

import bls_notebook as bls


def scripted(module: nn.Module) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module), buffer)
    return buffer.getvalue()


def tensor(name: str, datatype: str = "FP32", dims: tuple[int, ...] = (3,), **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{datatype}", "dims": dims, **more}


def load(repo: bls.ModelRepository, data: bytes, **config: Any) -> Any:
    whole = {
        "platform": "pytorch_libtorch",
        "input": [tensor("x")],
        "output": [tensor("y")],
        "instance_group": [{"kind": "KIND_CPU"}],  # also where there is a GPU
        **config,
    }
    return repo.load("m", whole, {"file:1/model.pt": data})


class Identity(nn.Module):
    def forward(self, x):
        return x


class AddSub(nn.Module):
    def forward(self, a, b) -> Tuple[Tensor, Tensor]:  # noqa: UP006
        return a + b, a - b


class Shout(nn.Module):
    def forward(self, texts: List[str]) -> Tuple[List[str], Tensor]:  # noqa: UP006
        out: List[str] = []  # noqa: UP006
        lengths = torch.zeros(len(texts), 1, dtype=torch.int64)
        for i, text in enumerate(texts):
            out.append(text + "!")
            lengths[i] = len(text)
        return out, lengths


class Lengths(nn.Module):
    def forward(self, texts: List[str]):  # noqa: UP006
        return torch.tensor([len(text) for text in texts])


class OfDict(nn.Module):
    def forward(self, tensors: Dict[str, Tensor]):  # noqa: UP006
        return tensors["left"] - tensors["right"]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.calls


class Totals(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("totals", torch.zeros(2, 1))

    def forward(self, x, start, ready, which) -> Tuple[Tensor, Tensor]:  # noqa: UP006
        before = self.totals[: len(x)].clone()
        total = torch.where(ready > 0, before * (1 - start) + x, before)
        self.totals[: len(x)] = total
        return total, which


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("no <b>such</b> thing")


class GivesDict(nn.Module):
    def forward(self, x) -> Dict[str, Tensor]:  # noqa: UP006
        return {"x": x}


class GivesList(nn.Module):
    def forward(self, x) -> List[Tensor]:  # noqa: UP006
        return [x, x]


class GivesScalar(nn.Module):
    def forward(self, x):
        return x.sum()


class LosesBatch(nn.Module):
    def forward(self, x):
        return x[:1]


class TakesNumber(nn.Module):
    def forward(self, x, n: int):
        return x * n


class TakesOptional(nn.Module):
    def forward(self, x, y: Optional[Tensor]):  # noqa: UP045
        return x if y is None else x + y


class TwoDicts(nn.Module):
    def forward(self, x: Dict[str, Tensor], y: Dict[str, Tensor]):  # noqa: UP006
        return x["a"] + y["a"]


class OnCuda(nn.Module):
    def forward(self, x):
        return x.cuda() + torch.ones(3, device="cuda")


class NamesCuda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = OnCuda()

    def forward(self, x):
        if bool(x.sum() > 0):
            for _ in range(2):
                x = self.inner(x).to("cuda:0")
        return x


class Differentiable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x) -> Tuple[Tensor, Tensor]:  # noqa: UP006
        return self.weight, torch.tensor([x.is_inference()])
