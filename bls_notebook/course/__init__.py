"""Exercises for learners: guess a result first, then check it."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
