"""Spares waiting for Hugging Face's hub where it cannot be reached: it is asked again for half a minute."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

_PATIENCE = 3.0  # seconds
_VARIABLE = "HF_HUB_OFFLINE"
# Where its libraries keep the variable that they read once.
_KEPT = (("huggingface_hub.constants", _VARIABLE), ("transformers.utils.hub", "_is_offline_mode"))
_ASKS = re.compile(r"\bfrom_pretrained\b|\bhuggingface_hub\b|\bhf_hub|\bsnapshot_download\b")


def asks_the_hub(source: str) -> bool:
    """Whether code looks as if it asked the hub for something."""
    return _ASKS.search(source) is not None


@contextmanager
def no_waiting_for_the_hub(wanted: bool) -> Iterator[str]:
    """Have the hub's libraries know at once that it cannot be reached, if so, as long as this is open.

    It yields what there is to say of it; nothing where nobody would ask (`wanted`), where the hub can be
    reached, or where the person has decided.
    """
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or ""
    if not wanted or _VARIABLE in os.environ or _proxied() or _reachable(host):
        yield ""
        return
    os.environ[_VARIABLE] = "1"
    _tell_the_libraries(True)
    try:
        yield f"{host} cannot be reached: nothing was fetched from it ({_VARIABLE}=1 while trying)"
    finally:
        os.environ.pop(_VARIABLE, None)
        _tell_the_libraries(False)


def _proxied() -> bool:
    """Whether the way to the network is somebody else's, so that a look at the host tells nothing."""
    return any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ)


def _reachable(host: str) -> bool:
    try:
        socket.create_connection((host, 443), _PATIENCE).close()
    except OSError:
        return False
    return True


def _tell_the_libraries(offline: bool) -> None:
    for module, name in _KEPT:
        if hasattr(sys.modules.get(module), name):
            setattr(sys.modules[module], name, offline)
