"""Python source as a tree, for looks at it that must not stand in a model's way.

Guarantees: what cannot be parsed has no tree; nothing is raised. (CPython 3.11 counts how deep it is in a
tree for all threads together, and may say of good source that the count is wrong.)
"""

from __future__ import annotations

import ast
import threading

TIMES = 5  # others in this process parse too, and hold no lock of ours
_lock = threading.Lock()


def syntax_tree(source: str) -> ast.Module | None:
    """Return the tree of a module's source; None where there is none, or it is too deep for anybody."""
    for _ in range(TIMES):
        try:
            with _lock:
                return ast.parse(source)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None
