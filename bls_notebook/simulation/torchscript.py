"""Rewrite TorchScript that names CUDA devices (as traces made on a GPU do) to run on the CPU."""

from __future__ import annotations

from typing import Any


def compute_on_host(module: Any) -> Any:
    """Make a loaded module and its submodules use the CPU instead of CUDA devices, in place.

    It changes constants that are CUDA devices, and calls of ``Tensor.cuda()``.
    """
    for part in module.modules():
        code: Any = getattr(part, "_c", None)  # None if it is not TorchScript
        for name in () if code is None else code._method_names():
            graph = code._get_method(name).graph
            for constant in graph.findAllNodes("prim::Constant"):
                if constant.output().type().kind() == "DeviceObjType" and "value" in constant.attributeNames():
                    constant.s_("value", "cpu")
            for node in list(graph.findAllNodes("aten::cuda")):
                made = graph.create("aten::cpu", list(node.inputs()), 1)
                made.insertBefore(node)
                made.output().setType(node.output().type())
                node.output().replaceAllUsesWith(made.output())
                node.destroy()
    return module
