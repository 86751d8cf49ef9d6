"""The wait graph: whether a request can still be answered by anything that may yet happen.

Pure and exact. A node is *live* when something outside the graph may still move it. A request that
waits in a queue is live when any instance that could serve it is held by a live execution; an
execution that waits is live when what it waits for is. What cannot be shown to be stuck is live, so
there is no false alarm; a set of nodes that only wait for each other is not live, so no deadlock among
known waits is missed. Holds no locks: the caller gives a consistent view.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Literal, TypeVar

Node = TypeVar("Node", bound=Hashable)
Mode = Literal["live", "any", "all"]
Need = tuple[Mode, Iterable[Node]]

LIVE: Mode = "live"
ANY: Mode = "any"
ALL: Mode = "all"


def deadlocked(start: Node, needs: Callable[[Node], Need[Node]]) -> dict[Node, list[Node]]:
    """Return the nodes that can never move, of one and all that it needs, each with those of them it needs.

    `start`: the node that is asked about. `needs`: gives, for a node, ``("live", ())`` for one that may move
    by itself, ``("any", nodes)`` for one that moves once any of the nodes does, ``("all", nodes)`` for one
    that needs them all. "any" of nothing is stuck; "all" of nothing is live. Each node is asked about once.
    Returns dict: empty where `start` may move.

    Least fixpoint of liveness over the nodes that can be reached: linear in the edges.
    """
    found: dict[Node, list[Node]] = {}
    waiting: dict[Node, int] = {}
    users: dict[Node, list[Node]] = {}
    live: list[Node] = []
    todo = [start]
    while todo:
        node = todo.pop()
        if node in found:
            continue
        mode, needed = needs(node)
        found[node] = children = list(dict.fromkeys(needed)) if mode != LIVE else []
        if mode == LIVE or (mode == ALL and not children):
            live.append(node)
            continue
        waiting[node] = len(children) if mode == ALL else 1
        for child in children:
            users.setdefault(child, []).append(node)
            todo.append(child)
    while live:
        node = live.pop()
        if found.pop(node, None) is None:
            continue
        for user in users.get(node, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                live.append(user)
    if start not in found:
        return {}
    return {node: [n for n in children if n in found] for node, children in found.items()}
