"""A plugin for `make check-notebooks`: nbval compares the final state of an output that a cell updates.

nbval ignores updates. So a stream's table or a progress bar, which appear where a machine is slow, would be compared as
they were at first. The notebook that takes longest starts first. The kernels have a data folder of their own, because
the score of a reader's cases is in Jupyter's.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from functools import wraps
from typing import Any

import pytest
from nbformat import NotebookNode, from_dict
from nbval.kernel import RunningKernel

_receive = RunningKernel.get_message


@wraps(_receive)
def _get_message(self: RunningKernel, stream: str, timeout: float | None = None) -> Any:
    message = _receive(self, stream, timeout)
    kind, content = message["msg_type"], message["content"]
    shown: dict[str, NotebookNode] = self.__dict__.setdefault("_shown", {})
    if kind == "display_data":
        content["data"] = from_dict(content["data"])  # nbval keeps a node as it is, and copies a dict
        shown[content["transient"].get("display_id")] = content["data"]
    elif kind == "update_display_data":
        data = shown[content["transient"]["display_id"]]
        data.clear()
        data.update(from_dict(content["data"]))
        message["msg_type"] = "comm_msg"  # which nbval skips
    return message


RunningKernel.get_message = _get_message

_data = tempfile.TemporaryDirectory()
os.environ["JUPYTER_DATA_DIR"] = _data.name

LONGEST = "14_to_production.ipynb"  # it starts real servers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.option.loadscopereorder = False  # which counts cells
    cells = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name != LONGEST, -cells[item.path], item.path))
