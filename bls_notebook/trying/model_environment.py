"""The environment of models that are tried: made from the project's requirements after a question, or their own.

Guarantee: nothing is installed unless `install` is given and a person has answered yes.
"""

from __future__ import annotations

import builtins
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bls_notebook.checking.project_requirements import ProjectRequirements, Requirement, project_requirements
from bls_notebook.engine import BLSError
from bls_notebook.records import count, first_line, visible
from bls_notebook.repository import ModelRepository, environments_folder, shown_requirements
from bls_notebook.repository.source import shown_path


@dataclass(frozen=True)
class ModelEnvironment:
    """The interpreter of a model's process; `made`: by `project_environment`."""

    python: str
    made: bool = False

    @property
    def version(self) -> tuple[int, ...]:
        answer = self._answer("import sys; print(*sys.version_info[:2])")
        return tuple(map(int, answer.split())) or sys.version_info[:2]

    def has(self, module: str) -> bool:
        """Return whether it can import a module."""
        return self._answer(f"from importlib.util import find_spec; print(find_spec({module!r}))") not in ("", "None")

    def _answer(self, code: str) -> str:
        command = [self.python, "-I", "-c", code]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()


def project_environment(project: Path, repository: Path, tell: Callable[[str], None] | None) -> tuple[str, str]:
    """Show what the project asks pip for, ask, and install it; return the folder, empty without it, and a note.

    Raises
    ------
    BLSError
        There is something to install, and no input for the question.
    """
    found = project_requirements(project, repository)
    left = [f"{_shown(each)}: {each.left_out}" for each in found.left_out]
    if not found.wanted:
        why = "no requirements.txt, environment.yml, pyproject.toml or Dockerfile of the project has packages for pip"
        return "", f"nothing was installed: {'; '.join([why, *left])}"
    if not _may_ask():
        raise BLSError(
            "try: install asks before it installs, and there is no input here: run it in a terminal, or in a notebook "
            "with a person; nothing was installed"
        )
    tell = tell or partial(print, file=sys.stderr)
    tell(_offer(found, left, repository))
    try:
        answer = input("Install them? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        return "", "nothing was installed: the answer was no"
    try:
        with ModelRepository() as maker:
            made = maker.environment([each.text for each in found.wanted], python=found.python)
    except BLSError as error:
        tell(str(error))
        return "", f"the installation failed, so the models have the kernel's packages: {first_line(str(error), 400)}"
    packages = count(len(made.packages), "package")
    return made.path, f"Python models ran in an environment with {packages} and Python {made.python}: {made.path}"


def _offer(found: ProjectRequirements, left: Sequence[str], repository: Path) -> str:
    """Return what would be installed, and from where."""
    lines = [f"`--install` would install for Python models of {shown_path(repository)}:"]
    lines += [f"  {_shown(each)}" for each in found.wanted]
    if not any(re.match(r"(?i)numpy(?![\w.-])", each.text) for each in found.wanted):
        lines.append("  numpy (added, because pb_utils needs it)")
    if left:
        lines += ["It would leave out:", *(f"  {each}" for each in left)]
    by, settings = ("uv", "UV_INDEX, uv.toml") if shutil.which("uv") else ("pip", "PIP_INDEX_URL, pip.conf")
    needs = f"Python {found.python} (of environment.yml)" if found.python else f"Python {platform.python_version()}"
    place = shown_path(environments_folder())
    lines.append(f"By {by}, from the indexes of its settings ({settings}; else PyPI), for {needs}, into {place}.")
    if found.python and by == "uv":
        lines.append(f"uv downloads Python {found.python} if it is not here.")
    lines.append("An installation can run code of the packages, with your permissions.")
    return "\n".join(lines)


def _shown(requirement: Requirement) -> str:
    return visible(f"{shown_requirements([requirement.text])} ({requirement.place})")


def _may_ask() -> bool:
    """Return whether a person can answer: in a terminal, or in a notebook whose kernel has input."""
    ipython = sys.modules.get("IPython")
    kernel: Any = getattr(ipython.get_ipython() if ipython is not None else None, "kernel", None)
    if kernel is not None and builtins.input == getattr(kernel, "raw_input", None):
        return bool(getattr(kernel, "_allow_stdin", False))
    with suppress(ValueError):  # closed
        return kernel is not None or (sys.stdin is not None and sys.stdin.isatty())
    return False
