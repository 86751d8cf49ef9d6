"""`rewritten`: a model whose calls wait for one another, as one whose calls are in flight together.

Guarantees: nothing is run; what is returned can be compiled; requests whose order matters keep it; nothing
is moved past code whose effects cannot be seen. What a response brings is looked at in the order of before.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from bls_notebook.repository.source.syntax import syntax_tree

from .loops import Loop, Loops
from .names import Function, Module
from .sites import NotPlainError, Site, Sites, find_sites
from .text import Text
from .together import Together
from .units import Block, Gather, Member, Piece, Unit, units_of
from .writing import Writer

_NOTHING = "its calls do not stand where they can be put together"


@dataclass(frozen=True)
class Rewritten:
    """A changed source, empty where there is none, and then why; ``lines`` are those that send together."""

    source: str = ""
    lines: tuple[int, ...] = ()
    reason: str = ""


def rewritten(
    source: str,
    lines: frozenset[int] = frozenset(),
    repeated: frozenset[int] | None = None,
    stateful: frozenset[str] = frozenset(),
) -> Rewritten:
    """Rewrite the source of a model.py.

    `lines` were seen to send a request, and `repeated` ones several that could be together: loops without one
    stay as they are (None: all may). Requests to `stateful` models keep their order.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    tree = syntax_tree(source)
    if tree is None or "\f" in source or (not source.isprintable() and "\ud800" <= max(source) <= "\udfff"):
        return Rewritten(reason="its source cannot be read")
    try:
        return _Rewriting(source, tree, lines, repeated, stateful).result()
    except NotPlainError as error:
        return Rewritten(reason=str(error))
    except RecursionError:
        return Rewritten(reason="its source is too deep")


class _Rewriting:
    def __init__(
        self,
        source: str,
        tree: ast.Module,
        lines: frozenset[int],
        repeated: frozenset[int] | None,
        stateful: frozenset[str],
    ) -> None:
        self._repeated = repeated
        self._text = Text(source)
        self._module = Module(tree)
        if self._module.imports.get("asyncio", "asyncio") != "asyncio" or "asyncio" in self._module.globals:
            raise NotPlainError("`asyncio` is another module there")
        self._sites: Sites = find_sites(self._module, lines, stateful)
        self._parents = {c: n for n in ast.walk(tree) for c in ast.iter_child_nodes(n)}
        self._blocks: list[Block] = []
        self._loops: list[Loop] = []
        self._lists: list[Site] = []
        self._reasons: list[str] = []

    def result(self) -> Rewritten:
        for function, found in self._sites.of.items():
            self._function(function, found)
        changed = [b for b in self._blocks if b.gathers]
        many = [s for found in self._sites.of.values() for s in found if s.many]
        if not (changed or self._loops or many):
            return Rewritten(reason=next(iter(self._reasons), _NOTHING))
        self._write(changed)
        new = self._text.whole()
        try:
            compile(syntax_tree(new) or "(", "model.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return Rewritten(reason="what it would become cannot be compiled")
        members = [m for b in changed for p in b.pieces if isinstance(p, Gather) for m in p.members]
        sent = [m.site.node.lineno for m in members] + [s.node.lineno for s in many]
        sent += [m.site.node.lineno for loop in self._loops for m in _members(loop)]
        return Rewritten(new, tuple(sorted(set(sent))))

    # -- deciding ------------------------------------------------------------------------------------

    def _function(self, function: Function, found: list[Site]) -> None:
        together = Together(function)
        kept = []
        for site in found:
            if site.many and not self._at_once(site):
                self._lists += [site] if isinstance(site.node, ast.GeneratorExp) else []
                for other in found:
                    if other.call is site.call:
                        other.repeated = False
            else:
                kept.append(site)
        found[:] = kept
        loops = Loops(function, together)
        self._walk(function.node.body, loops, False)
        self._reasons += together.reasons

    def _at_once(self, site: Site) -> bool:
        """Whether the elements of a comprehension can be sent together."""
        if site.keeps_order or not self._seen_often(site.node):
            return False
        does = self._sites.reader.of([site.node], site.function)
        return not does.unknown and not does.conflicts(does)

    def _seen_often(self, node: ast.AST) -> bool:
        if self._repeated is None:
            return True
        return bool(self._repeated & set(range(node.lineno, node.end_lineno + 1)))  # type: ignore[attr-defined]

    def _alone_often(self, site: Site) -> bool:
        """Whether a loop around it was seen to repeat it; a comprehension repeats its own requests."""
        return self._repeated is None or (not site.many and self._seen_often(site.node))

    def _units(self, statements: Sequence[ast.stmt], function: Function) -> list[Unit]:
        return units_of(statements, self._sites.of[function], self._sites, self._parents)

    def _walk(self, statements: Sequence[ast.stmt], loops: Loops, in_try: bool) -> None:
        for statement in statements:
            self._statement(statement, loops, in_try)
        block = Block(statements, in_try)
        block.pieces = loops.together.ordered(self._units(statements, loops.function), block)
        self._blocks.append(block)

    def _statement(self, statement: ast.stmt, loops: Loops, in_try: bool) -> None:
        """Walk through what a statement has within it; of a loop in two, that is what its statements have."""
        taken = isinstance(statement, ast.For) and self._in_two(statement, loops, in_try)
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, [])
            if inner and not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                trying = in_try or isinstance(statement, ast.Try)
                if taken and name == "body":
                    for each in inner:
                        self._statement(each, loops, trying)
                else:
                    self._walk(inner, loops, trying)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            self._walk(part.body, loops, True)

    def _in_two(self, statement: ast.For, loops: Loops, in_try: bool) -> bool:
        """Take a loop apart if its own requests, not only those of loops within it, could be together."""
        if not self._seen_often(statement):
            return False
        head = self._sites.reader.of([statement.iter], loops.function)
        loop = loops.in_two(statement, head, self._units(statement.body, loops.function), in_try)
        if loop is None or not any(self._alone_often(m.site) for m in _members(loop)):
            return False
        self._loops.append(loop)
        return True

    # -- writing -------------------------------------------------------------------------------------

    def _write(self, changed: list[Block]) -> None:
        text = self._text
        writer = Writer(text, self._module.every | set(self._module.imports) | set(self._module.functions))
        for block in changed:
            _name(writer, block.pieces)
        for loop in self._loops:
            each: Loop | None = loop
            while each is not None:
                writer.name_members(each.members, each.behind)
                _name(writer, each.pieces)
                each = each.after
        writer.write_sites([s for found in self._sites.of.values() for s in found if not s.repeated])
        for site in self._lists:
            assert isinstance(site.node, ast.GeneratorExp)
            writer.list_of(site.node)
        parts: list[tuple[int, Loop | Block]] = [(_length(text, [p.statement]), p) for p in self._loops]
        parts += [(_length(text, block.statements), block) for block in changed]
        for _, part in sorted(parts, key=lambda each: each[0]):  # the inner ones first
            if isinstance(part, Loop):
                writer.write_loop(part)
            else:
                writer.write_block(part)
        for function in self._sites.become_async:
            at = text.span(function.node)[0]
            if function.node.decorator_list:
                at = _def_at(text, function.node)
            text.edit((at, at), "async ")
        self._import()

    def _import(self) -> None:
        tree, text = self._module.tree, self._text
        imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
        if any(
            isinstance(n, ast.Import) and any(a.name == "asyncio" and not a.asname for a in n.names)
            for n in imports
        ):
            return
        plain = [n for n in imports if not (isinstance(n, ast.ImportFrom) and n.module == "__future__")]
        first = plain[0] if plain else None
        if first is None:
            after = [n for n in tree.body if n in imports or _is_docstring(n, tree)]
            at = text.line_end(text.span(after[-1])[1]) if after else 0
            text.edit((at, at), "\nimport asyncio" if after else "import asyncio\n")
            return
        at = text.span(first)[0]
        if text.raw(text.line_start(at), at).strip():
            raise NotPlainError(f"line {first.lineno}: several statements in one line")
        text.edit((at, at), "import asyncio\n")


def _length(text: Text, statements: Sequence[ast.stmt]) -> int:
    return text.span(statements[-1])[1] - text.span(statements[0])[0]


def _name(writer: Writer, pieces: Sequence[Piece]) -> None:
    for at, piece in enumerate(pieces):
        if isinstance(piece, Gather):
            later: list[Unit] = []
            for other in pieces[at + 1 :]:
                later += (
                    [u for m in other.members for u in (*m.needs, m.unit)]
                    if isinstance(other, Gather)
                    else [other]
                )
            writer.name_members(piece.members, later)


def _members(loop: Loop) -> list[Member]:
    own = [*loop.members, *(m for p in loop.pieces if isinstance(p, Gather) for m in p.members)]
    return own + (_members(loop.after) if loop.after is not None else [])


def _def_at(text: Text, node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Where `def` stands, below its decorators."""
    return text.span(ast.copy_location(ast.Pass(), node))[0]


def _is_docstring(node: ast.stmt, tree: ast.Module) -> bool:
    return node is tree.body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
