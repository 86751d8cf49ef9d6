"""Backends of compiled models: onnxruntime and PyTorch."""
