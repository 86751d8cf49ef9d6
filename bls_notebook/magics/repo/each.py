"""Does something to several models; one that fails does not keep the others from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import bls_notebook as bls
from bls_notebook.magics.failing import Interrupted, display_of, reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Models
from bls_notebook.observe.records.repository import ModelRecord

__all__ = ["each_model"]


def each_model(
    notebook: Notebook, names: Sequence[str], action: Callable[[str], ModelRecord]
) -> ModelRecord | Models:
    """Return the records that the action gave, one by itself or several as a table.

    Raises
    ------
    BLSError
        The last that failed; those before have been shown, as has what went well.
    """
    done, failed = Models(), list[bls.BLSError]()
    for name in dict.fromkeys(names):
        try:
            with reported(notebook, name):
                done.append(action(name))
        except Interrupted:
            raise
        except bls.BLSError as error:
            failed.append(error)
    if not failed:
        return done[0] if len(done) == 1 else done
    if done:
        notebook.show(done)
    for earlier in failed[:-1]:
        notebook.show(display_of(earlier))
    raise failed[-1]
