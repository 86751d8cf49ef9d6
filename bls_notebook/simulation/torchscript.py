"""TorchScript whose code names CUDA devices, as what was traced on a GPU does, made to work on the CPU."""

from __future__ import annotations

from typing import Any


def compute_on_host(module: Any) -> Any:
    """Return a loaded module whose code, and that of its parts, uses the CPU wherever it names a CUDA device.

    It is changed in place: constants that are CUDA devices, and calls of ``Tensor.cuda()``.
    """
    for part in module.modules():
        code: Any = getattr(part, "_c", None)  # None where a part is no TorchScript
        for name in () if code is None else code._method_names():
            graph = code._get_method(name).graph
            for constant in graph.findAllNodes("prim::Constant"):
                if (
                    constant.output().type().kind() == "DeviceObjType"
                    and "value" in constant.attributeNames()
                ):
                    constant.s_("value", "cpu")
            for node in list(graph.findAllNodes("aten::cuda")):
                made = graph.create("aten::cpu", list(node.inputs()), 1)
                made.insertBefore(node)
                made.output().setType(node.output().type())
                node.output().replaceAllUsesWith(made.output())
                node.destroy()
    return module
