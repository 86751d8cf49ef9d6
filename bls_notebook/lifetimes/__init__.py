"""Memory recordings: the lifetime of every tensor, its owners, and leaks."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
