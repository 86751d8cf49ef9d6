"""The onnxruntime backend: models from `model.onnx`, run by ONNX Runtime on the CPU, or on a GPU.

Mirrors triton-inference-server/onnxruntime_backend (src/onnxruntime.cc): what it completes and refuses,
which parameters it reads, and its words for errors. The package onnxruntime is imported when the first
model is opened.
"""

from __future__ import annotations

from .model import OnnxModel, open_model
from .session import has_gpu

__all__ = ["OnnxModel", "has_gpu", "open_model"]
