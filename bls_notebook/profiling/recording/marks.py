"""`mark()`: names a moment, for the timeline of a profile that is on."""

from __future__ import annotations

from time import perf_counter_ns

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.recording import log as recording
from bls_notebook.pb_utils._runtime import caller_var

_LONGEST = 200  # characters


def mark(name: str) -> None:
    """Name this moment: a point with a word on the timeline of every profile that is on.

    Works in the notebook and in the code of models, in any thread or task; a model that is to run on Triton
    too imports it where it is there. While no profile is on it does nothing.

    Parameters
    ----------
    name : str
        Such as ``"weights loaded"``; of a long one the first 200 characters are kept.

    Raises
    ------
    BLSError
        It is no text.

    Examples
    --------
    >>> with bls.profile() as session:
    ...     bls.mark("warm")
    ...     repo.infer("digit_reader", {"IMAGE": image})
    >>> session.record.marks
    """
    if not isinstance(name, str):
        raise BLSError(f'mark: got {type(name).__name__}, expected text such as bls.mark("loaded")')
    log = recording.active
    if log is not None:
        log.name(getattr(caller_var.get(), "span", 0), perf_counter_ns(), str(name[:_LONGEST]))
