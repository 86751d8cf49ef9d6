"""The onnxruntime backend: ONNX Runtime runs `model.onnx` on the CPU or on a GPU.

Mirrors triton-inference-server/onnxruntime_backend (src/onnxruntime.cc): its auto-completion, its checks,
its parameters and its error messages. The package onnxruntime is imported when the first model is opened.
"""

from __future__ import annotations

from .onnx_model import OnnxModel, has_gpu, open_model

__all__ = ["OnnxModel", "has_gpu", "open_model"]
