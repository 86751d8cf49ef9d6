"""For people who test their own models; see `docs/testing.md`.

With pytest there is the fixture `triton_repository`; `TritonTestCase` gives unittest the same. Neither is
imported before it is used.
"""

from bls_notebook.extending import lazily

from .capability import CAPABILITY

__getattr__, __dir__ = lazily(CAPABILITY)
