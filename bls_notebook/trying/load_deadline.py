"""`finished_within`: do something with a time limit."""

from __future__ import annotations

from collections.abc import Callable
from threading import TIMEOUT_MAX, Timer

from bls_notebook.engine import Operation, WaitInterruptedError


def finished_within(seconds: float, call: Callable[[], object]) -> bool:
    """Call a function; return False if the time limit interrupted it.

    It is left at its next wait: code of a model that does not stop then is left behind. The user's Ctrl-C raises.
    """
    operation = Operation()
    timer = Timer(min(seconds, TIMEOUT_MAX), operation.interrupt)
    timer.daemon = True
    timer.start()
    try:
        operation.run(call)
    except WaitInterruptedError as error:
        if error.operation is not operation:
            raise
        return False
    finally:
        timer.cancel()
    return True
