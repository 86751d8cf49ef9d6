"""What this process tells others of its kind, and is told: who waits where for whom (`abroad.py`).

Guarantees: told is only what the wait graph proves, taking for granted alone that requests which others have
get no answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from bls_notebook.backends.remote.link import Link
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.ticket import Ticket

from . import abroad, waiting
from .deadlock import ANY, Need
from .wait_graph import Node, needs

_MOST_CLAIMS, _MOST_NUMBERS = 8, 64  # of one look, and of one of them: headers are bounded


def send(ticket: Ticket, exchange: Any, link: Link) -> None:
    """Give a request its number, if it needs one."""
    number = abroad.leaving(ticket, link)
    if number:
        exchange.number(number)


def come(number: str, sender: Execution) -> None:
    """A request with a number is about to be sent to its model."""
    if abroad.NUMBER.fullmatch(number):
        abroad.origins[sender] = {number}


def sent_on(number: str, ticket: Ticket | None) -> None:
    """It has been."""
    if ticket is not None and abroad.NUMBER.fullmatch(number) and abroad.returned(number, ticket):
        waiting.look_at(ticket)


def told(text: str) -> None:
    """Take what another process says, and refuse what can never be served then."""
    for claim in text.split(";"):
        these, those = (part.split() for part in claim.partition(">")[::2])
        if not these or not those or not all(map(abroad.NUMBER.fullmatch, these + those)):
            continue
        with waiting.lock:
            tickets = abroad.learn(these, those)
        for ticket in tickets:
            waiting.look_at(ticket)


def _claims(link: Link) -> str:
    """Say which requests that came from elsewhere can only be answered after which that were sent there."""
    if not abroad.origins:
        return ""
    with waiting.lock:
        return ";".join(islice(_each(link), _MOST_CLAIMS))


def _each(link: Link) -> Iterator[str]:
    for start, numbers in abroad.homeward(link).items():
        if isinstance(start, Ticket) and start.sent:
            continue  # what it has sent may be on its way
        stuck = waiting.stuck_from(start, _needs)
        these = [abroad.number_of(node) for node in stuck if abroad.is_abroad(node) and not stuck[node]]
        if these and len(these) + len(numbers) <= _MOST_NUMBERS:
            yield f"{' '.join(these)}>{' '.join(sorted(numbers))}"


def _needs(node: Node, closer: bool = True) -> Need[Node]:
    if abroad.is_abroad(node) and not abroad.needed(node):
        return ANY, ()
    return needs(node, closer)


Link.waiting = staticmethod(_claims)
