"""Trying anybody's model repository: what loads is real, for the rest there are stubs, and a report says why.

`trial.py` is what is called. What decides is pure where it can be: `order.py`, `reasons.py`.
"""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
