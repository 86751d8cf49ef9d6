"""Ship models to Triton servers: export, serve on a local tritonserver, prove equal answers."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
