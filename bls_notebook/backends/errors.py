"""What a backend raises where a model cannot be loaded."""

from __future__ import annotations


class BackendError(Exception):
    """A model that its backend refuses; the text is Triton's where Triton has one.

    Parameters
    ----------
    message : str
        One line.
    code : str
        Kind of the failure as Triton words it: ``Internal``, ``Invalid argument``, ``Unavailable``,
        ``Unsupported``.
    """

    def __init__(self, message: str, code: str = "Internal") -> None:
        super().__init__(message)
        self.code = code
