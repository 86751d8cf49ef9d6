"""`try_repository`: run any model repository; stubs replace models that cannot load, and a report says why."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
