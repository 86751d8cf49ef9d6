"""Profiles of requests: sync compared with async, dependences of calls, and the smallest setting."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
