"""PyTorch on simulated GPUs: what tensors say, where results are, what is refused, what memory is counted."""

from __future__ import annotations

import copy
import gc
import io
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.devices import instance_gpu
from bls_notebook.devices.instance_gpu import OwnGPU
from bls_notebook.simulation import gpu_memory
from tests.devices.conftest import CAPACITY, Kit
from tests.simulation.lazy_torch import needs_torch, torch

pytestmark = needs_torch


@pytest.fixture
def inside() -> Iterator[Kit]:
    """Two simulated GPUs, and this thread runs a model's code."""
    gpu_memory.set_gpus(0, CAPACITY)  # of what others have left nothing counts
    bls.simulate_gpus(2, CAPACITY, even_with_cuda=True)
    with OwnGPU().current():
        yield Kit("simulated", bls.cupy(), 2)
    bls.simulate_gpus(0)


@pytest.fixture
def x(inside: Kit) -> Any:
    return torch.arange(6.0, device="cuda").reshape(2, 3)


def test_only_a_models_code_sees_them(simulated: Kit) -> None:
    host = torch.ones(2)
    assert not torch.cuda.is_available()
    own = OwnGPU()
    with own.current():
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 2
        assert host.cuda().is_cuda
        other = threading.Thread(target=lambda: seen.append(torch.cuda.is_available()))
        seen: list[bool] = []
        other.start()
        other.join()
    assert seen == [False]  # a thread that nobody of a model started
    assert not torch.cuda.is_available()
    assert type(torch.Generator()) is torch._C.Generator
    for ask in (lambda: torch.zeros(2, device="cuda"), lambda: host.cuda(), torch.cuda.Stream):
        with pytest.raises((AssertionError, RuntimeError)):
            ask()


def test_a_tensor_keeps_its_place_outside(simulated: Kit) -> None:
    with OwnGPU().current():
        x = torch.ones(2, device="cuda:1")
    assert (str((x + 1).device), repr(x)) == ("cuda:1", "tensor([1., 1.], device='cuda:1')")
    assert type(x.cpu()) is torch.Tensor
    del x


def test_default_devices_of_a_model_end_with_its_code(simulated: Kit) -> None:
    before = torch._C._len_torch_function_stack()
    with OwnGPU().current():
        torch.set_default_device("cuda:1")
        torch.device("cuda").__enter__()
        assert torch.zeros(1).device == torch.device("cuda:0")
    assert torch._C._len_torch_function_stack() == before
    assert torch.zeros(1).device.type == torch.get_default_device().type == "cpu"


def test_default_device_of_the_notebook_stays(simulated: Kit) -> None:
    with torch.device("meta"):
        with OwnGPU().current():
            torch._C._pop_torch_function_stack()
        assert torch.zeros(1).is_meta
    assert torch._C._len_torch_function_stack() == 0


def test_the_default_device_is_a_models_own(simulated: Kit) -> None:
    one, two = OwnGPU(), OwnGPU()
    with one.current():
        torch.set_default_device("cuda:1")
        with two.current():
            assert torch.zeros(1).device.type == "cpu"
        made = torch.zeros(1), torch.tensor([1]), torch.nn.Linear(2, 2).weight, torch.arange(2)
        assert {str(m.device) for m in made} == {"cuda:1"} == {str(torch.get_default_device())}
        assert torch.zeros(1, device="cpu").device.type == "cpu"


def test_a_tensor_says_where_it_is(x: Any) -> None:
    assert (x.device, (x.is_cuda, x.is_cpu, x.get_device())) == (torch.device("cuda:0"), (True, False, 0))
    assert (x.type(), x.half().type()) == ("torch.cuda.FloatTensor", "torch.cuda.HalfTensor")
    assert repr(x[0]) == "tensor([0., 1., 2.], device='cuda:0')"
    assert repr(x[0].half()) == "tensor([0., 1., 2.], device='cuda:0', dtype=torch.float16)"
    assert repr(x[0].clone().requires_grad_()) == "tensor([0., 1., 2.], device='cuda:0', requires_grad=True)"
    assert f"{x[0, 1]:.1f}" == "1.0"
    assert isinstance(x, torch.Tensor)


@pytest.mark.parametrize("make", [
    lambda: torch.zeros(2, device="cuda"), lambda: torch.zeros(2, device=0),
    lambda: torch.tensor([1, 2], device=torch.device("cuda")),
    lambda: torch.as_tensor(np.ones(2), device="cuda:0"),
    lambda: torch.from_numpy(np.ones(2)).cuda(non_blocking=True),
    lambda: torch.ones(2).to("cuda", torch.half, non_blocking=True),
    lambda: torch.ones(2).to(torch.zeros(1, device="cuda", dtype=torch.int64)),
    lambda: torch.ones(2).pin_memory().to(device="cuda"), lambda: torch.zeros_like(torch.ones(2), device="cuda"),
    lambda: torch.rand(2, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)),
    lambda: torch.linspace(0, 1, 3).cuda().to("cuda:1").to("cuda:0"),
    lambda: torch.nn.Parameter(torch.ones(2)).cuda(), lambda: torch.from_dlpack(torch.ones(2, device="cuda")),
    lambda: torch.vmap(lambda a: a.sum())(torch.ones(2, 2, device="cuda")),
    lambda: torch.randn(4, 4, device="cuda").sort().values[:, 1],
    lambda: torch.nn.DataParallel(torch.nn.Linear(2, 2)).cuda()(torch.ones(1, 2, device="cuda")),
    lambda: torch.nn.LSTM(3, 2).cuda()(torch.ones(1, 1, 3, device="cuda"))[1][0],
    lambda: next(iter(torch.ones(2, device="cuda"))),
])  # fmt: skip
def test_ways_to_a_gpu(inside: Kit, make: Any) -> None:
    made = make()
    assert str(made.device) == "cuda:0"
    assert not made.cpu().is_cuda


def test_the_current_gpu_is_meant_by_no_number(inside: Kit) -> None:
    with torch.cuda.device(1):
        assert (torch.cuda.current_device(), torch.zeros(1, device="cuda").cuda().get_device()) == (1, 1)
        assert torch.zeros(1).cuda(0).get_device() == 0
    torch.cuda.set_device("cuda:1")
    assert torch.zeros(1).cuda().get_device() == 1
    torch.cuda.set_device(0)
    with torch.device("cuda:1"):
        assert torch.ones(1).get_device() == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal 7"):
        torch.zeros(1, device="cuda:7")


@pytest.mark.parametrize("mix", [
    lambda x: x + torch.ones(3), lambda x: torch.ones(3) * x[0, 0], lambda x: torch.cat([x, torch.ones(1, 3)]),
    lambda x: torch.nn.Linear(3, 2)(x), lambda x: torch.nn.Linear(3, 2).cuda()(x.cpu()),
    lambda x: torch.where(x > 1, x, torch.ones(2, 3)), lambda x: x.add_(torch.ones(2, 3)),
    lambda x: torch.add(x, 1, out=torch.empty(2, 3)),
    lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1])), lambda x: x.to("cuda:1") @ x.T,
])  # fmt: skip
def test_devices_do_not_mix(x: Any, mix: Any) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least"):
        mix(x)


def test_cpu_tensors_that_operations_on_a_gpu_accept(x: Any) -> None:
    assert (x * torch.tensor(2.0)).is_cuda
    assert x[torch.tensor([1])].is_cuda
    x[0] = torch.ones(3)
    x[1].copy_(torch.zeros(3))
    assert x.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert not torch.ones(3).copy_(x[0]).is_cuda
    assert not torch.tensor([x[0, 0], x[0, 1]]).is_cuda  # numbers, one by one
    packed = torch.nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([2]), batch_first=True)
    assert (packed.data.is_cuda, packed.batch_sizes.is_cuda) == (True, False)


@pytest.mark.parametrize("convert", [lambda x: x.numpy(), np.asarray])
def test_numpy_does_not_see_it(x: Any, convert: Any) -> None:
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy\. Use Tensor\.cpu\(\)"):
        convert(x)


def test_a_module_moves_with_its_parameters(inside: Kit) -> None:
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    norm = torch.nn.BatchNorm1d(3)
    module = torch.nn.Sequential(first, norm, second)
    held = first.weight
    assert module.to("cuda") is module
    assert held is first.weight is second.weight
    assert (held.is_cuda, norm.running_mean.is_cuda, isinstance(held, torch.nn.Parameter)) == (True,) * 3
    assert len(list(module.parameters())) == 5
    assert copy.deepcopy(module)[0].weight.is_cuda
    assert module.half()[0].weight.device == torch.device("cuda:0")
    assert type(module.float().cpu()[0].weight) is torch.nn.Parameter
    assert not held.is_cuda


def test_training(inside: Kit) -> None:
    def trained(device: str) -> Any:
        torch.manual_seed(3)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        module = module.to(device)
        for _ in range(3):
            module.zero_grad()
            loss = module(torch.ones(2, 3, device=device)).square().sum()
            loss.backward()
            assert module[0].weight.grad.device == torch.device(device)
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
        return loss.item(), module[0].weight.detach().cpu().tolist()

    assert trained("cuda:0") == trained("cpu")


@pytest.mark.parametrize(("location", "expected"), [
    ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu"), (None, "cpu"), ({"cpu": "cuda:1"}, "cuda:1"),
    (lambda storage, _: storage.cuda(1), "cuda:1"),
])  # fmt: skip
def test_torch_load_to_a_gpu(inside: Kit, location: Any, expected: str) -> None:
    file = io.BytesIO()
    torch.save(torch.nn.Linear(3, 2).cuda().state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, map_location=location)
    assert {str(tensor.device) for tensor in loaded.values()} == {expected}


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript_answers_on_the_gpu(x: Any) -> None:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location="cuda")
    assert {str(p.device) for p in loaded.parameters()} == {"cuda:0"}
    assert loaded(x).is_cuda


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript_that_names_cuda_answers_too(x: Any) -> None:
    """As what was traced on a GPU does."""
    from tests.engines.torch_modules import NamesCuda, scripted

    loaded = torch.jit.load(io.BytesIO(scripted(NamesCuda())), map_location="cuda")
    answer = loaded(x.abs() + 1)
    assert answer.is_cuda
    assert answer.cpu().tolist() == (x.abs() + 3).cpu().tolist()


def test_autocast_casts(x: Any) -> None:
    layer = torch.nn.Linear(3, 2).cuda()
    with torch.autocast("cuda"):
        assert layer(x).dtype == torch.float16
        with torch.autocast("cuda", enabled=False):
            assert layer(x).dtype == torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")


def test_compiling_gives_back_what_it_got(x: Any) -> None:
    module = torch.nn.Linear(3, 2).cuda()
    with pytest.warns(RuntimeWarning, match=r"torch\.compile does nothing"):
        assert torch.compile(module, mode="max-autotune") is module


def test_streams_and_events(x: Any) -> None:
    stream = torch.cuda.Stream(device="cuda:1")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        start.record()
        assert torch.cuda.current_stream() is stream
        assert torch.cuda.current_device() == 1
        end.record()
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_event(stream.record_event())
    x.record_stream(stream)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert isinstance(stream, torch.cuda.Stream)
    assert isinstance(start, torch.cuda.Event)
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(end)


def test_memory_is_counted_and_given_back(inside: Kit) -> None:
    assert torch.cuda.memory_allocated() == 0
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1000, device="cuda")
    view = x[500:]
    doubled = x * 2
    assert (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()) == (8000, (CAPACITY - 8000, CAPACITY))
    del doubled, x
    assert torch.cuda.memory_allocated() == 4000  # of the view
    del view
    assert (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()) == (0, 8000)
    assert torch.cuda.get_device_properties(0).total_memory == CAPACITY


def test_memory_of_others_is_not_counted_as_allocated_by_torch(inside: Kit) -> None:
    array = inside.cupy.ones(250, np.float32)  # as the output of a callee, which is in the server's own memory
    output = torch.from_dlpack(array)
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (0, 0)
    doubled = output * 2
    assert (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]) == (1000, CAPACITY - 2000)
    before = instance_gpu.enter(instance_gpu.OwnGPU())  # another instance
    assert torch.cuda.memory_allocated() == 0
    instance_gpu.enter(before)
    assert torch.cuda.memory_allocated() == doubled.nbytes == 1000


@pytest.mark.parametrize("ask", [
    lambda: torch.zeros(CAPACITY, device="cuda"),
    lambda: torch.empty(1 << 50, device="cuda"),
    lambda: torch.zeros(1, device="cuda").new_empty(1 << 50),
    lambda: torch.empty(CAPACITY, dtype=torch.int16).cuda(),
    lambda: torch.ones(8192, 1, device="cuda") @ torch.ones(1, 8192, device="cuda"),
])  # fmt: skip
def test_no_more_than_there_is(inside: Kit, ask: Any) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate .*16\.00 MiB"):
        ask()
    gc.collect()
    assert torch.cuda.memory_allocated() == 0


def test_dlpack_shares_memory_both_ways(x: Any, inside: Kit) -> None:
    array = inside.cupy.from_dlpack(x)
    array[0, 0] = 7
    assert x[0, 0].item() == 7
    back = torch.from_dlpack(array[1])
    back[0] = 9
    assert (str(back.device), x[1, 0].item()) == ("cuda:0", 9)
    capsule = torch.utils.dlpack.to_dlpack(x[1])
    del x, array, back
    assert torch.cuda.memory_allocated() == 24  # the capsule keeps it
    assert torch.utils.dlpack.from_dlpack(capsule).tolist() == [9, 4, 5]
    assert inside.cupy.asarray(torch.ones(2, device="cuda")).sum() == 2


_STEPS: dict[str, Any] = {
    **{
        name: lambda x, name=name: getattr(x, name)()
        for name in ["neg", "abs", "exp", "sin", "sigmoid", "relu", "clone", "half"]
    },
    "contiguous": lambda x: x.contiguous(),
    "cumsum": lambda x: x.cumsum(-1),
    "softmax": lambda x: x.softmax(-1),
    "sort": lambda x: x.sort(dim=0).values,
    "flip": lambda x: x.flip(0),
    "T": lambda x: x.T,
    "view": lambda x: x.reshape(-1, x.shape[0]),
    "matmul": lambda x: x.float() @ x.float().T,
    "norm": lambda x: torch.nn.functional.layer_norm(x.float(), x.shape[-1:]),
    # These change the tensor in place.
    "row": lambda x: x.__setitem__(0, 1),
    "mask": lambda x: x.__setitem__(x > 0, 2),
    "add": lambda x: x.add_(x.new_ones(x.shape[-1])),
    "fill": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 3),
}
_programs = st.lists(st.sampled_from(list(_STEPS)), min_size=1, max_size=8)


def test_programs_give_the_cpus_bits(inside: Kit) -> None:
    @given(program=_programs, rows=st.integers(1, 4), columns=st.integers(1, 4), seed=st.integers(0, 99))
    def check(program: Any, rows: int, columns: int, seed: int) -> None:
        def run(device: str) -> Any:
            x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(device)
            for name in program:
                changed = _STEPS[name](x)
                x = x if changed is None else changed
                assert x.device == torch.device(device)
            return x.dtype, x.cpu().reshape(-1).clone().view(torch.uint8).tolist()

        assert run("cuda:0") == run("cpu")

    with torch.no_grad():
        check()
