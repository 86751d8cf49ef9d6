"""Loading, unloading and asking after models from inside a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ._runtime import current_caller
from .errors import TritonModelException, plain_text


def _text(function: str, argument: str, value: object) -> str:
    text = plain_text(value)
    if text is None:
        raise TypeError(f"{function}(): {argument} must be str that has a UTF-8 form, got {value!r}")
    return text


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load or reload a model.

    Parameters
    ----------
    model_name : str
        Name of a model of the repository.
    config : str
        Configuration as JSON text, instead of config.pbtxt.
    files : mapping of str to bytes
        Contents of ``file:<version>/<name>``, instead of the files on disk; needs `config`.

    Raises
    ------
    TritonModelException
        The model could not be loaded; the message says why.
    TypeError
        An argument of a wrong type.
    """
    _text("load_model", "model_name", model_name)
    _text("load_model", "config", config)
    contents: dict[str, bytes] | None = None
    if files is not None:
        if not isinstance(files, Mapping):
            raise TypeError(f"load_model(): files must be a mapping of str to bytes, got {files!r}")
        contents = {}
        for name, data in files.items():
            if not isinstance(name, str) or not isinstance(data, (bytes, str)):
                raise TypeError(f"load_model(): files must map str to bytes, got {name!r}")
            contents[name] = data if isinstance(data, bytes) else data.encode()
    current_caller().load_model(model_name, config, contents)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model; one that is not loaded is no error.

    Raises
    ------
    TritonModelException
        The model could not be unloaded.
    """
    _text("unload_model", "model_name", model_name)
    current_caller().unload_model(model_name, bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model is ready; of `model_version`, as text, or of its newest version.

    Raises
    ------
    TritonModelException
        `model_version` is not a number.
    """
    _text("is_model_ready", "model_name", model_name)
    _text("is_model_ready", "model_version", model_version)
    return current_caller().is_model_ready(model_name, model_version)


def get_model_dir() -> str:
    """Return the folder of the running version of the model, where its model.py is."""
    try:
        return current_caller().model_directory()
    except TritonModelException:
        frame = sys._getframe(1)  # the file of a cell's code is not where its model is
        return os.path.dirname(os.path.abspath(frame.f_globals.get("__file__") or frame.f_code.co_filename))
