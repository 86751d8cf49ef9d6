"""Backends for model files: onnxruntime (ONNX) and pytorch (TorchScript and Python modules)."""
