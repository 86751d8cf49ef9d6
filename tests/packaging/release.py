"""The release checklist: build the wheel and the sdist, install each into empty environments, and run a first model.

    make release              # a release: needs a clean tree, a tag v1.2.3 on HEAD, and its section in CHANGELOG.md
    make release REHEARSE=1   # the same without the tag and the section

The files are in dist/ afterwards. Publishing them is the only step left.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
FIRST_MODEL = """
from pathlib import Path
import re, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell()
for block in re.findall("```python\\n(.*?)```", Path(sys.argv[1]).read_text(), re.DOTALL)[:4]:
    shell.run_cell(block).raise_error()
import bls_notebook as bls
response = bls.current_repository().infer("length", {"IN": shell.user_ns["x"]})
assert response["LENGTH"].as_numpy().tolist() == [5.0], response
print("answered 5.0 with", bls.__version__)
"""


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command; raise RuntimeError with its output if it fails."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def tagged_version() -> str:
    """Return the version of HEAD's tag; check the tree and the changelog."""
    if changed := run("git", "status", "--porcelain"):
        raise RuntimeError(f"uncommitted changes:\n{changed}")
    tags = [tag for tag in run("git", "tag", "--points-at", "HEAD").split() if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    if len(tags) != 1:
        raise RuntimeError(f"HEAD has the version tags {tags}, expected one such as v1.2.3: git tag -a v1.2.3")
    version = tags[0][1:]
    if not re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        raise RuntimeError(f"CHANGELOG.md has no line `## {version} - YYYY-MM-DD`")
    return version


def build() -> str:
    """Build both files; check their names and the wheel's top level. Return their names."""
    for old in DIST.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", DIST)
    [wheel], [sdist] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    if "triton_python_backend_utils" in top or "triton_python_backend_utils.py" in top:
        raise RuntimeError(f"{wheel.name} would shadow a real server's triton_python_backend_utils")
    return f"{wheel.name}, {sdist.name}"


def interpreters() -> Iterable[tuple[str, Path]]:
    """Yield the installed Pythons of `VERSIONS`."""
    for version in VERSIONS:
        places = [f"python{version}", *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
        for place in places:
            try:
                yield version, Path(run(place, "-c", "import ensurepip, sys; print(sys.executable)"))
                break
            except (OSError, RuntimeError):
                continue
        else:
            print(f"  - Python {version} is not installed: skipped")


def install(python: Path, file: Path) -> str:
    """Install a file into an empty environment, and run README's example there. Return the example's last line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(python, "-m", "venv", folder / "environment")
        inside = folder / "environment" / "bin" / "python"
        run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file)
        run(inside, "-m", "bls_notebook", "--help", cwd=folder)
        return run(inside, "-c", FIRST_MODEL, ROOT / "README.md", cwd=folder).splitlines()[-1]


def main(arguments: list[str]) -> int:
    """Run the checklist; return 1 at the first failure."""
    steps: list[tuple[str, Callable[[], str]]] = []
    if "--rehearse" not in arguments:
        steps.append(("clean tree, tag and changelog", tagged_version))
    steps.append(("wheel and sdist", build))
    for version, python in interpreters():
        for kind in ("*.whl", "*.tar.gz"):
            steps.append(
                (f"Python {version}, {kind[2:]}", lambda p=python, k=kind: install(p, next(DIST.glob(k))))  # type: ignore[misc]
            )
    for name, step in steps:
        try:
            print(f"  ✓ {name}: {step()}", flush=True)
        except RuntimeError as error:
            print(f"  ✗ {name}: {error}")
            return 1
    print("Publish: python -m twine upload dist/*; then push the tag.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
