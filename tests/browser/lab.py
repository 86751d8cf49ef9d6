"""A real JupyterLab, and a notebook that is open in it.

The server has a copy of the sample models and separate settings, caches and kernels; it listens on loopback only, and
its kernels import this checkout. Needs jupyterlab, `playwright` for Python and any Chromium.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 200  # only a failing test waits so long, even on a busy machine

CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)

_READY = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready; await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""

_RUN = f"async () => {{ await ({_READY})(); await window.jupyterapp.commands.execute('notebook:run-all-cells'); }}"

_ASK = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({code: '', silent: true, user_expressions: {it: code}});
  return (await future.done).content.user_expressions.it;
}"""


def find_chromium() -> str | None:
    """Return the browser: $CHROMIUM, or one on the path or in a usual place."""
    if named := os.environ.get("CHROMIUM"):
        return named
    on_path = (shutil.which(name) for name in _NAMES)
    return next((path for path in (*on_path, *_PLACES) if path and Path(path).exists()), None)


def notebook_file(cells: Sequence[str | Mapping[str, Any]]) -> dict[str, Any]:
    """Return a notebook of code cells; a mapping is a complete cell."""
    whole = [
        cell
        if isinstance(cell, Mapping)
        else {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
        for cell in cells
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{"id": f"cell-{i}", **cell} for i, cell in enumerate(whole)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


class Lab:
    """A JupyterLab server; `close` stops it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "root"
        (self.root / "notebooks").mkdir(parents=True)
        # Beside the notebooks, where the course expects it.
        shutil.copytree(ROOT / "model_repository", self.root / "model_repository")
        self.token = secrets.token_hex(16)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._settings()
        self._log = (home / "lab.log").open("wb")
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
                "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}",
                "--ServerApp.terminals_enabled=False", "--LabApp.expose_app_in_browser=True",
                "--LabApp.news_url=None",
                "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            ],
            env=self._environment(), stdout=self._log, stderr=self._log,
        )  # fmt: skip
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _settings(self) -> None:
        for name, value in {
            "apputils-extension/notification": {"fetchNews": "false", "doNotDisturbMode": True},
            "notebook-extension/tracker": {"windowingMode": "none"},
            "docmanager-extension/plugin": {"autosave": False},
        }.items():
            file = self.home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(value), encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))}
        path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        return {**kept, "PYTHONPATH": path, **{k: str(self.home / v) for k, v in own.items()}}

    def _wait_until_ready(self) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/status", headers={"Authorization": f"token {self.token}"}
        )
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(request, timeout=5).close()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab did not start:\n{self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        """Return the end of the server's log."""
        return (self.home / "lab.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def url(self, name: str) -> str:
        """Return the address of a notebook."""
        return f"http://127.0.0.1:{self.port}/lab/tree/notebooks/{name}?token={self.token}&reset"

    def close(self) -> None:
        """Stop the server and its kernels."""
        self._process.terminate()  # an interrupt would make it ask for confirmation
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class OpenNotebook:
    """A notebook on a Playwright `page`; `problems` are its uncaught exceptions."""

    def __init__(self, lab: Lab, page: Any, name: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.set_default_timeout(SECONDS * 1000)
        page.on("pageerror", self._problem)
        page.goto(lab.url(name))
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        page.evaluate(
            "async () => { const shell = window.jupyterapp.shell; shell.collapseLeft();"
            " await shell.currentWidget.revealed; await shell.currentWidget.context.ready; }"
        )

    def _problem(self, error: Any) -> None:
        # Only those of widgets, whose code is a blob: JupyterLab raises some when it closes a panel or a kernel.
        stack = str(error.stack)
        own = "message before replies were done" in f"{error}{stack}"
        if not own and ("blob:" in stack or "/static/" not in stack):
            self.problems.append(f"{error}\n{stack}")

    def ready(self) -> None:
        """Wait until the kernel answers."""
        self.page.evaluate(_READY)

    def run(self, tries: int = 3) -> None:
        """Run all cells and wait for them."""
        script = (
            f"(ms) => Promise.race([({_RUN})(),"
            " new Promise((_, no) => setTimeout(() => no(new Error('the cells took too long')), ms))])"
        )
        for left in reversed(range(tries)):  # the very first message to a kernel can get lost
            try:
                self.page.evaluate(script, SECONDS * 1000)
                return
            except Exception:
                if not left:
                    raise
                self.page.evaluate(
                    "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
                )

    def cell(self, index: int) -> Any:
        """Return a locator of a cell."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Any:
        """Return a locator of a cell's outputs."""
        return self.cell(index).locator(".jp-OutputArea-output")

    def executed(self) -> list[bool]:
        """Return for each code cell whether it has run."""
        counts: list[int | None] = self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.content.widgets"
            ".filter(cell => cell.model.type === 'code').map(cell => cell.model.executionCount ?? null)"
        )
        return [count is not None for count in counts]

    def errors(self) -> list[str]:
        """Return the tracebacks and stderr on the page."""
        selector = '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type*="stderr"]'
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the kernel, passed as JSON."""
        answer = self.page.evaluate(_ASK, f"__import__('json').dumps({expression})")
        if answer["status"] != "ok":
            raise AssertionError(f"{expression}: {answer['ename']}: {answer['evalue']}")
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    def ask_until(self, expression: str, seconds: float = 10) -> Any:
        """Evaluate an expression in the kernel until it is true; return its last value."""
        deadline = time.monotonic() + seconds
        while not (value := self.ask(expression)) and time.monotonic() < deadline:
            self.page.wait_for_timeout(50)
        return value

    def theme(self, name: str) -> None:
        """Switch to ``Dark`` or ``Light``, and wait until the page shows it."""
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", f"JupyterLab {name}"
        )
        light = "true" if name == "Light" else "false"
        self.page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")

    def close(self) -> None:
        """Close the page and the kernel."""
        with contextlib.suppress(Exception):  # it may have ended already
            self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.page.close()
