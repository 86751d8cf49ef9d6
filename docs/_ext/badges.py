"""Links that open a notebook of the course in Colab or Binder, if this clone's origin is on GitHub."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_GITHUB = re.compile(r"(?:https://|git@|ssh://git@)github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def repository_of(folder: Path) -> str:
    """Return ``owner/name`` of the GitHub repository that `folder` was cloned from; "" if it was not."""
    command = ["git", "-C", str(folder), "config", "--get", "remote.origin.url"]
    try:
        url = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    match = _GITHUB.fullmatch(url)
    return match[1] if match else ""


def badges(repository: str, notebook: str) -> str:
    """Return Markdown with the badges of a notebook, and what works there; "" without a repository."""
    if not repository:
        return ""
    path = f"notebooks/{notebook}"
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/{path}"
    binder = f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{path}"
    return (
        f"[Open in Colab]({colab}){{.badge}} [Open in Binder]({binder}){{.badge}}\n\n"
        "Magics and pictures work there, without the browser debugger: use `%debug`. "
        f'In Colab, first run `%pip install "bls_notebook[notebook] @ git+https://github.com/{repository}"`, '
        "`!python -m bls_notebook learn --course course` and `%cd course/notebooks`."
    )
