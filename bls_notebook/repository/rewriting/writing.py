"""Writes what was decided into the text: what did not change keeps its lines, comments and spaces."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from .loops import Loop
from .sites import Site
from .text import Text
from .units import Block, Gather, Member, Piece, Unit, answer_of

_WIDTH = 100
_STEP = "    "


class Writer:
    """Writes the changes of a module; `names` are those that are taken."""

    def __init__(self, text: Text, names: set[str]) -> None:
        self._text, self._names = text, set(names)
        self._calls: dict[Site, str] = {}
        self._named: dict[str, str] = {}  # what answers are called
        self._quiet: set[ast.stmt] = set()  # whose place the gathered call takes
        self._spoken: set[ast.stmt] = set()  # whose comments were written already

    # -- sites ---------------------------------------------------------------------------------------

    def name_members(self, members: Sequence[Member], later: Iterable[Unit]) -> None:
        """Choose the variables that answers go to: where nothing stands in between, the model's own."""
        later = [*later]
        for member in members:
            self._name(member, members, later)
            self._named[answer_of(member.site)] = member.site.stand_in

    def _name(self, member: Member, members: Sequence[Member], later: list[Unit]) -> None:
        target = member.unit.target
        alone = [m.unit.target for m in members].count(target) == 1
        binds = next((u for u in later if u.binds is member.site), None)
        before = later[: later.index(binds)] if binds is not None else []
        uses = [*before, *(n for m in members for n in m.needs)]
        untouched = not any(target in u.effects.reads | u.effects.writes for u in uses)
        if binds is not None and not target:
            member.site.stand_in = "_"
            self._quiet.add(binds.statement)
        elif target and alone and untouched and not member.unit.held:
            member.site.stand_in = target
            self._quiet.add(member.unit.statement)
        else:
            member.site.stand_in = self.fresh(target or "answer", numbered=True)

    def fresh(self, base: str, numbered: bool = False) -> str:
        """Return a name that is not taken."""
        found, number = f"{base}_1" if numbered else base, 1
        while found in self._names:
            number += 1
            found = f"{base}_{number}"
        self._names.add(found)
        return found

    def write_sites(self, sites: Sequence[Site]) -> None:
        text = self._text
        for site in sorted(sites, key=lambda s: _length(text.span(s.node))):
            start, end = text.span(site.node)
            called = site.call.func
            if isinstance(called, ast.Attribute) and called.attr == "exec":
                stop = text.span(called)[1]
                text.edit((stop - len("exec"), stop), "async_exec")
            if site.many:
                shown = self._many(site)
                text.edit((start, end), f"({shown})" if isinstance(site.node, ast.GeneratorExp) else shown)
                continue
            self._calls[site] = text.render(*text.span(site.call), inner=True)
            if site.stand_in:
                text.edit((start, end), site.stand_in)
            elif site.node is site.call:
                parent = site.parent
                tight = isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is site.node
                tight = tight or (isinstance(parent, ast.Call) and parent.func is site.node)
                waits = f"await {self._calls[site]}"
                text.edit((start, end), f"({waits})" if tight else waits)
            # else it is awaited already

    def _many(self, site: Site) -> str:
        """What a comprehension becomes: its own list, or one made of what was gathered."""
        text, node = self._text, site.node
        assert isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp))
        assert site.inner is not None
        start, end = text.span(node)
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        first, last = text.span(element)
        call = text.render(*text.span(site.call), inner=True)
        tail = text.render(last, end - 1).rstrip()
        if isinstance(node, ast.DictComp) or element is not site.inner:
            tail = f" {tail.lstrip(') ')}"
            between = ""
        else:
            between = text.render(start + 1, first).lstrip()
        self._calls[site] = f"asyncio.gather(*[{between}{call}{tail}])"
        answers = site.stand_in or f"await {self._calls[site]}"
        if element is not site.inner:
            each = self.fresh("each")
            text.edit(text.span(site.inner), each)
            answers = f"[{text.render(first, last)} for {each} in {answers}]"
        if isinstance(node, ast.DictComp):
            return f"dict(zip([{text.render(*text.span(node.key))}{tail}], {answers}))"
        return answers

    def list_of(self, node: ast.GeneratorExp) -> None:
        """Write a generator expression as a list: nothing can be awaited in it."""
        start, end = self._text.span(node)
        self._text.edit((start, end), f"([{self._text.render(start + 1, end - 1)}])")

    # -- blocks --------------------------------------------------------------------------------------

    def write_block(self, block: Block) -> None:
        text, statements = self._text, block.statements
        sent = {
            m.unit.statement for piece in block.pieces if isinstance(piece, Gather) for m in piece.members
        }
        places = [i for i, s in enumerate(statements) if s in sent]
        low, high = min(places), max(places)
        while low and _end_line(statements[low - 1]) == statements[low].lineno:
            low -= 1
        while high + 1 < len(statements) and statements[high + 1].lineno == _end_line(statements[high]):
            high += 1
        inside = set(statements[low : high + 1])
        pieces = [p for p in block.pieces if isinstance(p, Gather) or p.statement in inside]
        start, end = text.span(statements[low])[0], self._end_of(statements[high])
        own = text.raw(text.line_start(start), start)
        if own.strip():  # on the line of what it is in
            indent = text.indent(start) + _STEP
            text.edit((start, end), f"\n{self.pieces(pieces, indent, block.statements)}".rstrip("\n"))
            return
        start = self._begin_of(statements, low)
        text.edit((start, end), self.pieces(pieces, own, block.statements).rstrip("\n"))

    def write_loop(self, loop: Loop) -> None:
        text, statement = self._text, loop.statement
        start = text.span(statement)[0]
        end = self._end_of(statement.body[-1])
        target = text.render(*text.span(statement.target))
        over = text.render(*text.span(statement.iter))
        indent = text.indent(start)
        first = statement.body[0]
        if first.lineno > _end_line(statement.iter):
            header = text.render(start, text.line_end(text.span(statement.iter)[1]))
            inner = text.raw(text.line_start(text.span(first)[0]), text.span(first)[0])
        else:
            header, inner = f"{text.render(start, text.span(statement.iter)[1])}:", indent + _STEP
        written = self._loop(loop, header, target, over, indent, inner)
        text.edit((start, end), written.removeprefix(indent).rstrip("\n"))

    def _loop(self, loop: Loop, header: str, target: str, over: str, indent: str, inner: str) -> str:
        body = loop.statement.body
        members = loop.members
        if loop.alone:
            call = self._calls[members[0].site]
            all_ = f"await asyncio.gather(*[{call} for {target} in {over}])"
            out = ""
        else:
            sent = self.fresh("sent")
            calls = [self._sent(m) for m in members]
            front = self.pieces(loop.front, inner, body) + self._before(members, inner, body)
            front += self._comments_of(members, body)
            held = ""
            if loop.held and not loop.again:
                held = self.fresh("held")
                names = [*dict.fromkeys(self._named.get(name, name) for name in loop.held)]
                kept = names[0] if len(names) == 1 else f"({', '.join(names)})"
                front += f"{inner}{held}.append({kept})\n"
                target, over = kept, held
            one = calls[0] if len(calls) == 1 else f"asyncio.gather({', '.join(calls)})"
            front += f"{inner}{sent}.append({one})\n"
            made = f"{indent}{sent} = []\n" + (f"{indent}{held} = []\n" if held else "")
            out = f"{made}{indent}{header}\n{front}"
            all_ = f"await asyncio.gather(*{sent})"
        answers = [m.site.stand_in for m in members]
        answer = answers[0] if len(answers) == 1 else f"({', '.join(answers)})"
        if loop.held:
            target = f"({target})" if "," in target and not target.startswith("(") else target
            header = f"for {target}, {answer} in zip({over}, {all_}):"
        else:
            plain = answer[1:-1] if len(answers) > 1 else answer
            header = f"for {plain} in {all_}:"
        if loop.after is not None:
            again = f"{target}, {answer}" if loop.held else answer
            return out + self._loop(loop.after, header, again, "", indent, inner)
        rest = self._comments_of(members, body) + self.pieces(loop.pieces, inner, body)
        if not rest.strip() and set(answers) == {"_"}:
            return f"{out}{indent}{all_}\n"
        return out + f"{indent}{header}\n{rest if rest.strip() else f'{inner}pass'}\n"

    # -- pieces --------------------------------------------------------------------------------------

    def pieces(self, pieces: Sequence[Piece], indent: str, siblings: Sequence[ast.stmt]) -> str:
        """Return the text of units and gathers, a line each at least."""
        out = []
        for piece in pieces:
            if isinstance(piece, Gather):
                out.append(self._before(piece.members, indent, siblings))
                out.append(self._gather(piece.members, indent, siblings))
            elif piece.site is None and not (piece.binds is not None and piece.statement in self._quiet):
                out.append(self._chunk(piece.statement, indent, siblings))
        return "".join(out)

    def _before(self, members: Sequence[Member], indent: str, siblings: Sequence[ast.stmt]) -> str:
        out = []
        for member in members:
            out.append(self.pieces(member.needs, indent, siblings))
            if member.unit.held:
                out.append(f"{indent}{member.site.stand_in} = {self._calls[member.site]}\n")
        return "".join(out)

    def _sent(self, member: Member) -> str:
        return member.site.stand_in if member.unit.held else self._calls[member.site]

    def _gather(self, members: Sequence[Member], indent: str, siblings: Sequence[ast.stmt]) -> str:
        comments = self._comments_of(members, siblings)
        names = [m.site.stand_in for m in members]
        targets = "" if set(names) == {"_"} else f"{', '.join(names)} = "
        calls = [self._sent(m) for m in members]
        line = f"{indent}{targets}await asyncio.gather({', '.join(calls)})"
        if len(line) > _WIDTH or any("\n" in call for call in calls):
            inner = "".join(f"{indent}{_STEP}{_shifted(call)},\n" for call in calls)
            line = f"{indent}{targets}await asyncio.gather(\n{inner}{indent})"
        return f"{comments}{line}\n"

    def _comments_of(self, members: Sequence[Member], siblings: Sequence[ast.stmt]) -> str:
        """The comments of statements that are no more there."""
        gone = [m.unit.statement for m in members if m.unit.statement in self._quiet]
        return "".join(self._comments(statement, siblings) for statement in gone)

    def _chunk(self, statement: ast.stmt, indent: str, siblings: Sequence[ast.stmt]) -> str:
        start = self._text.span(statement)[0]
        body = self._text.render(start, self._end_of(statement))
        return f"{self._comments(statement, siblings)}{indent}{body}\n"

    def _comments(self, statement: ast.stmt, siblings: Sequence[ast.stmt]) -> str:
        """The lines above a statement that belong to it."""
        if statement in self._spoken:
            return ""
        self._spoken.add(statement)
        at = siblings.index(statement) if statement in siblings else 0
        start = self._text.span(statement)[0]
        line = self._text.line_start(start)
        if self._text.raw(line, start).strip():
            return ""
        return self._text.raw(min(self._begin_of(siblings, at), line), line)

    def _begin_of(self, statements: Sequence[ast.stmt], at: int) -> int:
        """Where a statement begins, with the comments above it."""
        start = self._text.line_start(self._text.span(statements[at])[0])
        if at == 0:
            while start and self._is_comment(above := self._text.line_start(start - 1)):
                start = above
            return start
        before = self._text.line_end(self._text.span(statements[at - 1])[1])
        return min(before + 1, start)

    def _is_comment(self, line: int) -> bool:
        """Whether a line, by where it begins, has nothing but a comment, or nothing at all."""
        return self._text.raw(line, self._text.line_end(line)).strip()[:1] in ("", "#")

    def _end_of(self, statement: ast.stmt) -> int:
        """Where a statement ends, with the comment behind it."""
        end = self._text.span(statement)[1]
        rest = self._text.raw(end, self._text.line_end(end))
        return (
            self._text.line_end(end) if rest.lstrip(" \t;").startswith("#") or not rest.strip(" \t;") else end
        )


def _shifted(call: str) -> str:
    """A call that takes several lines, one step to the right, where that changes no text in it."""
    if "\n" not in call:
        return call
    try:
        tree = ast.parse(f"({call})")
    except SyntaxError:
        return call
    texts = (n for n in ast.walk(tree) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    if any(n.end_lineno != n.lineno for n in texts):
        return call
    return call.replace("\n", f"\n{_STEP}")


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _end_line(node: ast.AST) -> int:
    return int(node.end_lineno)  # type: ignore[attr-defined]
