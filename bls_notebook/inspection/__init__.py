"""The inspector: contents of tensors, responses, models and requests, as records."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
