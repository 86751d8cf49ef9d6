"""Which sites in a block are sent together: those that do not need one another, nor what stands between them.

The first site waits for the others. What these need is moved before them; what needs an answer, and all
else, stays in its order after them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .names import Function, within_body
from .units import Block, Gather, Member, Piece, Unit, needed_by


class Together:
    """Puts the units of blocks in order; ``reasons`` say why sites were left where they are."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self.reasons: list[str] = []

    def ordered(self, units: list[Unit], block: Block) -> list[Piece]:
        """Return units with the sites that go together gathered."""
        first = next((i for i, unit in enumerate(units) if unit.site is not None), None)
        if first is None:
            return [*units]
        members, behind, rest = self.first_group(units, first, block)
        if len(members) == 1:
            return [*units[: first + 1], *self.ordered(units[first + 1 :], block)]
        return [*units[:first], Gather(members), *self.ordered([*behind, *rest], block)]

    def first_group(
        self, units: list[Unit], first: int, block: Block
    ) -> tuple[list[Member], list[Unit], list[Unit]]:
        """Return the sites to be sent with the first, what comes after them, and what is out of reach."""
        members, behind = [Member(units[first])], list[Unit]()
        if units[first].stops(block.in_try):
            return members, behind, units[first + 1 :]
        for at, unit in enumerate(units[first + 1 :], first + 1):
            if stops := unit.stops(block.in_try):
                if any(later.site is not None for later in units[at:]):
                    self.reasons.append(stops)
                return members, behind, units[at:]
            if unit.site is None:
                behind.append(unit)
                continue
            needs = needed_by(unit, behind)
            why = self._why_not(unit, needs, [m.unit for m in members], behind, block)
            if why is None:
                behind = [b for b in behind if b not in needs]
                members.append(Member(unit, needs))
            else:
                self.reasons += [why] if why else []
                behind.append(unit)
        return members, behind, []

    def _why_not(
        self, unit: Unit, needs: list[Unit], group: list[Unit], behind: list[Unit], block: Block
    ) -> str | None:
        """Say why a site is not sent with others: empty where it needs an answer; None where it can be."""
        assert unit.site is not None
        answers = {name for g in group for name in g.effects.writes if name.startswith("@")}
        if any(n.site is not None or n.effects.reads & answers for n in needs):
            return ""
        if unit.effects.reads & answers:
            return ""
        if unit.site.keeps_order and any(g.site and g.site.keeps_order for g in (*group, *behind)):
            return ""
        where = f"line {unit.statement.lineno}"
        for g in group:
            if found := _named(g.effects.conflicts(unit.effects)):
                return f"{where}: two requests at once would both use {found}"
        for moved in needs:
            if moved.effects.exits or any(not _is_local(w, self._function) for w in moved.effects.writes):
                return (
                    f"line {moved.statement.lineno}: the next request needs it, and it does more than compute"
                )
            for g in group:
                clash = {w for w in moved.effects.writes if w.startswith("*")} & g.effects.reads
                if clash:
                    return f"line {moved.statement.lineno}: {_named(clash)} changes between two requests"
        stay = [b for b in behind if b not in needs]
        for moved in [*needs, unit]:
            for b in stay:
                before = moved is unit or behind.index(b) < behind.index(moved)
                if before and (found := _named(moved.effects.conflicts(b.effects))):
                    return f"line {b.statement.lineno}: {found} is used between two requests"
        made_of = {r for m in (*needs, unit) for r in m.effects.reads}
        for b in stay:
            if b.effects.exits and self._asks_about(b) & made_of:
                return ""  # it may only be looked at once that is known
        exits = {how for b in stay for _, how in b.effects.exits}
        if unit.effects.exits and exits - {"raise"}:
            return f"{where}: if it fails, that would be told before what happens in between"
        kept = {w for b in stay for w in b.effects.writes if not w.startswith(("@", "#"))}
        lost = {
            w for w in kept if not w.isidentifier() and (block.in_try or not _is_local(w, self._function))
        }
        if lost and (block.in_try or unit.effects.exits):
            return f"{where}: if it fails, {_named(lost)} would not have been changed before"
        if block.in_try or exits & {"continue", "break"}:
            names = {w for m in needs for w in m.effects.writes if not w.startswith(("*", "@"))}
            names |= kept if block.in_try else set()
            names |= {g.target for g in (*group, unit)} - {""}
            if not self.only_here(names, block.statements):
                return f"{where}: what it sets is read elsewhere, also where a request has failed"
        for moved in needs:
            for g in group:
                if {w for w in moved.effects.writes if not w.startswith("*")} & g.effects.reads:
                    g.held = True
        return None

    def _asks_about(self, unit: Unit) -> set[str]:
        """What decides whether the program goes on after a unit."""
        statement = unit.statement
        asked = (
            [n for n in ast.walk(statement.test) if isinstance(n, ast.Name)]
            if isinstance(statement, ast.If)
            else []
        )
        names = {n.id for n in asked} or {r for r in unit.effects.reads if r.isidentifier()}
        return names & self._function.locals

    def only_here(self, names: set[str], statements: Sequence[ast.stmt]) -> bool:
        """Whether variables are read in these statements alone, and set there before."""
        inside = {id(n) for s in statements for n in ast.walk(s)}
        seen: set[str] = set()
        uses = [n for n in within_body(self._function.node) if isinstance(n, ast.Name) and n.id in names]
        if any(id(n) not in inside and isinstance(n.ctx, ast.Load) for n in uses):
            return False
        for statement in statements:
            within = {id(n) for n in ast.walk(statement)}
            here = [n for n in uses if id(n) in within]
            if any(isinstance(n.ctx, ast.Load) and n.id not in seen for n in here):
                return False
            seen |= {n.id for n in here} if isinstance(statement, (ast.Assign, ast.AnnAssign)) else set()
        return True


def _is_local(name: str, function: Function) -> bool:
    return name.lstrip("*") in function.locals and not name.startswith("#")


def _named(found: set[str]) -> str:
    names = sorted({name.lstrip("*") for name in found if not name.startswith("@")})
    return " and ".join(
        f"`{n}`" if not n.startswith(("#", "<")) else "an argument" if n[0] == "<" else "the log"
        for n in names[:2]
    )
