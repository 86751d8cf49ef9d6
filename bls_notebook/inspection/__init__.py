"""The inspector (`inspect`) and the live panel of a repository (`watch`)."""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
