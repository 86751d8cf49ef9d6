"""Models over the network: the KServe protocol, connections to servers, and endpoints for clients."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
