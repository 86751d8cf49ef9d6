"""Statements one after the other, taken apart into what sends and the rest, and what each needs of others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .effects import Effects
from .names import SCOPES, within
from .sites import Site, Sites, conditional


@dataclass(eq=False)
class Unit:
    """A statement, or a site in one.

    ``binds`` is the site whose answer this gives to a variable; ``always`` are the variables that it sets in
    any case. A site is sent ``held``: as a future that is made where it was written.
    """

    statement: ast.stmt
    effects: Effects
    site: Site | None = None
    binds: Site | None = None
    target: str = ""
    always: frozenset[str] = frozenset()
    held: bool = False

    def stops(self, in_try: bool) -> str:
        """Why no request may be sent before it that follows it; empty where one may.

        One that raises makes the whole request fail, also where the model asks for more than an error.
        """
        if self.effects.unknown:
            return self.effects.unknown
        fine = {True} if in_try else {True, False}
        if self.site is None and any(
            not error and (how != "raise" or error not in fine) for error, how in self.effects.exits
        ):
            return f"line {self.statement.lineno}: what follows may not be reached"
        return ""


@dataclass
class Member:
    """A site that is sent with others, and what has to come before it."""

    unit: Unit
    needs: list[Unit] = field(default_factory=list)

    @property
    def site(self) -> Site:
        assert self.unit.site is not None
        return self.unit.site


@dataclass
class Gather:
    members: list[Member]


Piece = Unit | Gather


@dataclass(eq=False)
class Block:
    """Statements one after the other, and what becomes of them."""

    statements: Sequence[ast.stmt]
    in_try: bool
    pieces: list[Piece] = field(default_factory=list)

    @property
    def gathers(self) -> bool:
        return any(isinstance(piece, Gather) for piece in self.pieces)


def answer_of(site: Site) -> str:
    """Return what the answer of a site is called while units are put in order."""
    return f"@{id(site)}"


def units_of(
    block: Sequence[ast.stmt],
    found: Sequence[Site],
    sites: Sites,
    parents: Mapping[ast.AST, ast.AST],
) -> list[Unit]:
    return [unit for statement in block for unit in _taken_apart(statement, found, sites, parents)]


def _taken_apart(
    statement: ast.stmt, found: Sequence[Site], sites: Sites, parents: Mapping[ast.AST, ast.AST]
) -> list[Unit]:
    head = {*_head(statement)}
    own = [s for s in found if s.node in head and not s.repeated]
    own = [s for s in own if not conditional(s, statement, dict(parents))]
    own.sort(key=lambda s: (s.node.end_lineno, s.node.end_col_offset))  # the inner ones first
    function = found[0].function if found else None
    if function is None:
        return []
    own = [s for s in own if _may_come_first(s, statement, own, sites, parents)]
    whole = {s.node for s in own}
    units = []
    for site in own:
        inner = [s for s in own if s is not site and s.node in {*ast.walk(site.node)}]
        effects = sites.reader.of([site.node], function, {s.node for s in inner})
        effects.reads |= {answer_of(s) for s in inner}
        effects.writes.add(answer_of(site))
        units.append(Unit(statement, effects, site))
    rest = sites.reader.of([statement], function, whole)
    outermost = [s for s in own if not any(s is not o and s.node in {*ast.walk(o.node)} for o in own)]
    rest.reads |= {answer_of(s) for s in outermost}
    for unit in units:
        if unit.site is not None and unit.site.many:  # what it does with each answer
            rest.reads |= unit.effects.reads
    last = Unit(statement, rest, always=_always(statement))
    if len(outermost) == 1:
        site = outermost[0]
        if not site.is_answer:
            return [*units, last]
        if isinstance(statement, ast.Assign) and statement.value is site.node and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                last.binds, last.target = site, target.id
                units[-1].target = target.id
        elif isinstance(statement, ast.Expr) and statement.value is site.node:
            last.binds = site
    return [*units, last]


def _head(statement: ast.stmt) -> Iterable[ast.AST]:
    """What of a statement is evaluated once, before the statements within it."""
    inner = {
        id(n)
        for name in ("body", "orelse", "finalbody", "handlers", "cases")
        for part in getattr(statement, name, [])
        for n in within(part)
    }
    if isinstance(statement, SCOPES):
        return []
    return [n for n in within(statement) if id(n) not in inner]


def _may_come_first(
    site: Site, statement: ast.stmt, own: list[Site], sites: Sites, parents: Mapping[ast.AST, ast.AST]
) -> bool:
    """Whether what is evaluated before a site in its statement does not mind to come after it."""
    around: set[ast.AST] = set()
    node: ast.AST = site.node
    beside: list[ast.AST] = []
    while node is not statement:
        above = parents[node]
        around.add(above)
        for child in ast.iter_child_nodes(above):
            if child is node:
                break
            if isinstance(child, ast.expr) and not (above is statement and isinstance(statement, ast.Assign)):
                beside.append(child)
        node = above
    others = {s.node for s in own if s is not site}
    before = sites.reader.of(beside, site.function, others)
    does = sites.reader.of([site.node], site.function, others)
    return not before.unknown and not before.conflicts(does)


def _always(statement: ast.stmt) -> frozenset[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        return frozenset()
    names = (n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Store))


def needed_by(unit: Unit, before: Sequence[Unit]) -> list[Unit]:
    """Return what of the units before, directly or not, makes what a unit reads."""
    wanted = set(unit.effects.reads)
    found = []
    for other in reversed(before):
        if other.effects.writes & wanted:
            found.append(other)
            wanted -= other.always
            wanted |= other.effects.reads
    return found[::-1]
