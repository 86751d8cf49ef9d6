"""The onnxruntime and PyTorch backends."""
