"""Requests between this process and others of its kind: who waits there for what was sent from there to here.

Each request of a model that goes to another such process carries a number. Where it can only be answered
there once a request comes back that was sent from there in turn, the connection's look at the server says so
(`claims.py`), and the wait graph here has that need.

Guarantees: a need is stable: what is said here holds until one of the requests named is answered, so no
request is refused that may yet be served. Text that names requests that nobody knows says nothing.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.ticket import Ticket

if TYPE_CHECKING:
    from bls_notebook.backends.remote.link import Link

NUMBER = re.compile(r"[0-9a-f]{16,32}\.[0-9]{1,15}")
_process = secrets.token_hex(8)
_count = itertools.count(1)
_sent: WeakValueDictionary[str, Ticket] = WeakValueDictionary()  # by their numbers, which were given here
_came: WeakValueDictionary[str, Ticket] = WeakValueDictionary()  # by their numbers, which were given there
_numbers: WeakKeyDictionary[Ticket, str] = WeakKeyDictionary()  # of what was sent
_links: WeakKeyDictionary[Ticket, Link] = WeakKeyDictionary()
# What came that one waits for, any of it.
_awaited: WeakKeyDictionary[Ticket, list[str]] = WeakKeyDictionary()
# By who sends it here: the number of what came, and those of requests that can only be answered after it.
origins: WeakKeyDictionary[Execution, set[str]] = WeakKeyDictionary()


def leaving(ticket: Ticket, link: Link) -> str:
    """Return the number of a request that is about to be sent; empty where nobody can ask about it."""
    parent = ticket.parent
    if parent is None or not (parent.model is not None or parent in origins):
        return ""
    if link.address.timeout is not None:  # it ends by itself
        return ""
    number = f"{_process}{os.getpid():x}.{next(_count)}"
    _sent[number], _numbers[ticket], _links[ticket] = ticket, number, link
    return number


def is_abroad(node: object) -> bool:
    """Whether a node is a request that was sent with a number, and has had no answer."""
    return isinstance(node, Ticket) and node in _numbers and not _moves(node)


def needed(ticket: Ticket) -> list[Ticket]:
    """Return the requests of which one has to be answered before one that was sent may be; or none."""
    these = _awaited.get(ticket) if _awaited else None
    if these is None or ticket.sent:
        return []
    found = [_came.get(each) for each in these]
    known = [each for each in found if each is not None and not _moves(each)]
    return known if len(known) == len(found) else []


def _moves(ticket: Ticket) -> bool:
    # What it has sent may still be on its way to who waits for it.
    return ticket.done or ticket.sent or ticket.cancelled or ticket.refused


def returned(number: str, ticket: Ticket) -> bool:
    """A request that came with a number has been sent to its model; whether it left from here."""
    _came[number] = ticket
    own = _sent.get(number)
    if own is not None:
        _awaited[own] = [number]
    return own is not None


def learn(these: list[str], waiting: list[str]) -> list[Ticket]:
    """Take note that requests can only be answered after one of `these`; return which of these came here."""
    for number in waiting:
        ticket = _sent.get(number)
        if ticket is not None:
            _awaited[ticket] = these
    found = [ticket for ticket in map(_came.get, these) if ticket is not None]
    if len(these) == 1:
        for ticket in found:
            if ticket.parent is not None and ticket.parent in origins:
                origins[ticket.parent].update(waiting)
    return found


def homeward(link: Link) -> dict[Ticket | Execution, set[str]]:
    """Return what came from elsewhere and waits for answers over a link, with the requests that wait for it.

    It is the execution where no ticket knows of it: of an ensemble.
    """
    found: dict[Ticket | Execution, set[str]] = {}
    sent = [ticket for ticket in (each() for each in _links.keyrefs()) if ticket is not None]
    todo = [ticket for ticket in sent if _links.get(ticket) is link and not ticket.done]
    for ticket in todo:  # grows
        start: Ticket | Execution = ticket
        execution = ticket.parent
        while execution is not None and execution not in origins:
            tickets = [*execution.tickets, *filter(None, [execution.ticket])]
            todo += (one for one in tickets if one not in todo)
            start, execution = execution, None if tickets else execution.parent
        if execution is not None:
            found[start] = origins[execution]
    return found


def number_of(ticket: Ticket) -> str:
    """Return the number with which a request was sent."""
    return _numbers[ticket]
