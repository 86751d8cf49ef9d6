"""The requirements, with their versions, that a project's files give pip for the models of a repository.

The files are requirements.txt, environment.yml, pyproject.toml and Dockerfiles in the folders around the repository and
inside it, or else those nearest to it, and the requirement files that they name.

Guarantee: a requirement that pip would take from elsewhere than its index (conda's packages, local folders, an index
that only the project names) is left out, because a package of this name in another index may be a stranger's.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bls_notebook.records import source_text

from .declared_packages import INDEX, PIP_INSTALL, normalized, under_pip, words_of
from .discovery import project_files

_FILES = re.compile(
    r"(?i)^requirements\.txt$|^environment\.ya?ml$|^pyproject\.toml$|^(docker|container)file([.-]|$)|\.dockerfile$"
)
_ONE = r"\s*(?:~=|===?|!=|[<>]=?)\s*[\w.*+!-]+\s*"
_NAME = r"[A-Za-z0-9](?:[\w.-]*\w)?\s*(?:\[[\w\s,.-]*\]\s*)?"
_VALID = re.compile(
    rf"{_NAME}(?:\({_ONE}(?:,{_ONE})*\)\s*|{_ONE}(?:,{_ONE})*|@\s*(?:git\+)?https?://\S+\s*)?(?:;.*)?"
    r"|git\+(?:https|ssh)://\S+"
)
_FILE_OPTION = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_CONDA = re.compile(r"""^\s*-\s+["']?([A-Za-z][\w.:-]*(?:\s*[\[=<>!~][^#"'\n]*)?)["']?\s*(?:#.*)?$""")
_COMMENT = re.compile(r"(^|\s)#.*|\s--?[a-z][\w-]*[ =].*")  # and options of a single requirement
_QUOTED = re.compile(r"""^(["'])(.*)\1$""")
_PYTHON = re.compile(r"python\s*==?\s*(3\.\d+)")


@dataclass(frozen=True)
class Requirement:
    """A requirement as pip takes it, its place (file and line), and why it is left out, if it is."""

    text: str
    place: str
    left_out: str = ""


@dataclass
class ProjectRequirements:
    """The requirements to install, the ones left out, and environment.yml's version of Python, or None."""

    wanted: list[Requirement] = field(default_factory=list)
    left_out: list[Requirement] = field(default_factory=list)
    python: str | None = None


def project_requirements(project: Path, repository: Path) -> ProjectRequirements:
    """Read a project's files; the one nearest to the repository counts for a package that several name."""
    reader = _Reader(project)
    owners: dict[str, Path] = {}
    found = ProjectRequirements()
    for file in _files(project, repository):
        with suppress(ValueError, RecursionError):  # not the file that its name says
            for each in reader.read(file):
                name = normalized(each.text if "://" in each.text else re.split(r"[^\w.-]", each.text)[0])
                if each.left_out:
                    found.left_out.append(each)
                elif owners.setdefault(name, file) == file and each.text not in [one.text for one in found.wanted]:
                    found.wanted.append(each)
    found.python = reader.python
    return found


def _files(project: Path, repository: Path) -> list[Path]:
    files = project_files(project, _FILES)
    around = [f for f in files if repository.is_relative_to(f.parent) or f.is_relative_to(repository)]
    shared = {f: len(os.path.commonpath([f, repository])) for f in files}
    chosen = around or [f for f in files if shared[f] == max(shared.values())]
    return sorted(chosen, key=lambda f: (-len(f.parts), not f.name.endswith(".txt"), f.name))


class _Reader:
    """Reads files, each once."""

    def __init__(self, project: Path) -> None:
        self.python: str | None = None
        self._project = project
        self._read: set[Path] = set()

    def read(self, file: Path) -> Iterator[Requirement]:
        if file in self._read:
            return
        self._read.add(file)
        text = source_text(file)
        if file.name == "pyproject.toml":
            yield from self._of_toml(file, text)
        elif file.suffix in (".yml", ".yaml"):
            part = under_pip(text)
            yield from self._of_lines(file, re.sub(r"(?m)^\s*-\s+", "", part), text[: text.find(part)].count("\n"))
            key = ""
            for number, line in enumerate(text.replace(part, "\n" * part.count("\n")).splitlines(), 1):
                key = line.strip() if re.match(r"\w", line) else key
                if (match := _CONDA.match(line)) is None or key != "dependencies:":
                    continue
                if re.match(r"(python|pip)\b(?!-)", match[1]):
                    self.python = self.python or (version[1] if (version := _PYTHON.match(match[1])) else None)
                else:
                    yield self._left(match[1], file, number, "it is conda's; pip's package of this name may be another")
        elif file.suffix in (".txt", ".in"):
            yield from self._of_lines(file, text)
        else:
            for match in PIP_INSTALL.finditer(text):
                number = text.count("\n", 0, match.start(1)) + 1
                elsewhere = bool(INDEX.search(f" {match[1]}"))
                for word in [*words_of(match[1]), *(f"-r {name}" for name in _FILE_OPTION.findall(match[1]))]:
                    yield from self._of(word.strip("'\""), file, number, elsewhere)

    def _of_lines(self, file: Path, text: str, first: int = 0) -> Iterator[Requirement]:
        elsewhere, number = bool(INDEX.search(text)), first + 1
        for line in re.split(r"(?<!\\)\n", text):
            requirement = _QUOTED.sub(r"\2", _COMMENT.sub("", line.replace("\\\n", " ")).strip())
            if requirement and not INDEX.match(requirement):
                yield from self._of(requirement, file, number, elsewhere)
            number += 1 + line.count("\n")

    def _of(self, text: str, file: Path, number: int, elsewhere: bool) -> Iterator[Requirement]:
        if (option := _FILE_OPTION.match(text)) is not None:
            named = option[1].strip("'\"")
            files = project_files(self._project, re.compile(f"^{re.escape(Path(named).name)}$"))
            beside = Path(os.path.normpath(file.parent / named))
            if beside in files or len(files) == 1:  # one in an image was copied there
                yield from self.read(beside if beside in files else files[0])
            else:
                yield self._left(text, file, number, "the project has no such file, or several")
        elif not _VALID.fullmatch(text) or text.endswith(".txt"):
            yield self._left(text, file, number, "it is no package of an index")
        elif elsewhere:
            yield self._left(text, file, number, "it is from an index that only this file names")
        else:
            yield Requirement(text, self._place(file, number))

    def _of_toml(self, file: Path, text: str) -> Iterator[Requirement]:
        if sys.version_info < (3, 11):
            yield self._left("its dependencies", file, 1, "this needs Python 3.11 here")
            return
        import tomllib

        data = tomllib.loads(text)
        for each in map(str, data.get("project", {}).get("dependencies", [])):
            yield from self._of(each, file, text.count("\n", 0, max(0, text.find(each))) + 1, False)
        for name, version in data.get("tool", {}).get("poetry", {}).get("dependencies", {}).items():
            number = text.count("\n", 0, max(0, text.find(f"\n{name}") + 1)) + 1
            if name != "python":
                yield self._left(f"{name} {version}", file, number, "its version is in poetry's form")

    def _left(self, text: str, file: Path, number: int, why: str) -> Requirement:
        return Requirement(text, self._place(file, number), why)

    def _place(self, file: Path, number: int) -> str:
        return f"{file.relative_to(self._project)}, line {number}"
