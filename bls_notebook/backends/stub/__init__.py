"""The stub backend: instances that answer from a model's configuration, without its files.

`how.Stub` says how a model is stood in for; `model.StubModel` is what its backend's `open_model` would give.
"""
