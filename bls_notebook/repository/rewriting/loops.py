"""Loops that send a request each time: first all are sent, then a second loop takes the answers, in order.

That is so where no request needs an answer of an earlier round, and what happens in between is seen through.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from .effects import CALLS, Effects
from .names import Function, goes_again, within_body
from .together import Together
from .units import Block, Member, Piece, Unit, answer_of


@dataclass(eq=False)
class Loop:
    """A loop in two: `front` and the members are of the first, the second has the rest."""

    statement: ast.For
    front: list[Unit]
    members: list[Member]
    behind: list[Unit]
    after: Loop | None = None  # the second loop sends again, and is in two itself
    pieces: list[Piece] = field(default_factory=list)  # else what the second one does
    held: list[str] = field(
        default_factory=list
    )  # variables of the first, and answers, that the second reads
    again: bool = False  # whether what the loop goes through can be gone through twice
    alone: bool = False  # whether it can be written as a comprehension


class Loops:
    def __init__(self, function: Function, together: Together) -> None:
        self.function, self.together = function, together

    def in_two(self, statement: ast.For, head: Effects, units: list[Unit], in_try: bool) -> Loop | None:
        """Return a loop in two; None where it stays as it is. `head` is what its first line does."""
        targets = {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}
        where = f"line {statement.lineno}"
        if in_try or statement.orelse:
            self._say(f"{where}: the loop is within `try`, or has an `else`", units)
            return None
        loop = self._split(statement, head, units, targets)
        if loop is None:
            return None
        continues = any(how == "continue" for u in loop.front for _, how in u.effects.exits)
        needs = [n for m in loop.members for n in m.needs]
        through = targets | head.reads
        changed = targets & head.reads or any(u.effects.writes & through for u in (*loop.front, *needs))
        loop.again = (
            not (continues or changed)
            and set(loop.held) <= targets
            and goes_again(statement.iter, self.function)
        )
        loop.alone = not (
            loop.front or needs or len(loop.members) > 1 or self._read_after(statement, targets)
        )
        loop.alone = loop.alone and (not loop.held or loop.again)
        return loop

    def _split(self, statement: ast.For, head: Effects, units: list[Unit], targets: set[str]) -> Loop | None:
        first = next((i for i, unit in enumerate(units) if unit.site is not None), None)
        if first is None:
            return None
        block = Block(statement.body, False)
        for unit in units:
            if unit.effects.unknown or any(how == "break" for _, how in unit.effects.exits):
                self._say(
                    unit.effects.unknown or f"line {unit.statement.lineno}: it may leave the loop", units
                )
                return None
        members, behind, rest = self.together.first_group(units, first, block)
        if rest:
            return None
        front = units[:first]
        if any(how == "return" for u in front for _, how in u.effects.exits):
            return None
        why = self._carried(head, [*front, *(n for m in members for n in m.needs)], members, behind, targets)
        if why:
            self._say(f"line {statement.lineno}: {why}", units)
            return None
        loop = Loop(statement, front, members, behind)
        made = targets | {
            w for u in (*front, *(n for m in members for n in m.needs)) for w in _names(u.effects.writes)
        }
        answers = {answer_of(m.site) for m in members}
        loop.held = sorted(made & {r for u in behind for r in u.effects.reads})
        leaves = any(how == "continue" for u in front for _, how in u.effects.exits)
        if leaves and self._read_after(statement, {name for name in loop.held if name.isidentifier()}):
            self._say(
                f"line {statement.lineno}: what a round that ends early sets is read after the loop", units
            )
            return None
        loop.after = self._split(statement, Effects(), behind, made | answers)
        if loop.after is None:
            loop.pieces = self.together.ordered(behind, block)
        return loop

    def _carried(
        self, head: Effects, front: list[Unit], members: list[Member], behind: list[Unit], targets: set[str]
    ) -> str:
        """Say what a round needs of the one before; empty for nothing."""
        sent = [m.unit for m in members]
        if any(m.site.keeps_order for m in members):
            return "its requests have an order of their own"
        for one in sent:
            for other in sent:
                if clash := _plain(one.effects.conflicts(other.effects)):
                    return f"requests at once would use {clash} together"
        fresh = {name for unit in front for name in unit.always}
        written = {w for u in front for w in u.effects.writes if not w.startswith("@")} | targets
        read = {r for u in (*front, *sent) for r in u.effects.reads if not r.startswith("@")} | head.reads
        later_writes = {w for u in behind for w in u.effects.writes if not w.startswith("@")}
        later_reads = {r for u in behind for r in u.effects.reads if not r.startswith("@")}
        if clash := _plain(later_writes & (read | _names(written)) - {CALLS}):
            return f"{clash} of one round is used in the next"
        heap = {w for w in written if not w.isidentifier()} - {f"*{name}" for name in fresh} - {CALLS}
        inside = {r for u in sent for r in u.effects.reads}
        if clash := _plain(heap & (later_reads | later_writes | inside)):
            return f"{clash} changes from round to round"
        return ""

    def _say(self, why: str, units: Sequence[Unit]) -> None:
        if any(unit.site is not None for unit in units):
            self.together.reasons.append(why)

    def _read_after(self, statement: ast.For, names: set[str]) -> bool:
        inside = {id(n) for n in ast.walk(statement)}
        every = (n for n in within_body(self.function.node) if isinstance(n, ast.Name) and n.id in names)
        return any(isinstance(n.ctx, ast.Load) and id(n) not in inside for n in every)


def _names(found: set[str]) -> set[str]:
    return {name for name in found if name.isidentifier()}


def _plain(found: set[str]) -> str:
    names = sorted({n.lstrip("*") for n in found if not n.startswith("@")})
    return " and ".join("the log" if n.startswith("#") else f"`{n}`" for n in names[:2])
