"""``python -m bls_notebook learn``: solve the puzzles in an editor; the command checks the file that was saved last."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Generator, Iterator
from difflib import SequenceMatcher
from pathlib import Path

from bls_notebook.operations import OperationSpec, flag, option, whole_number
from bls_notebook.records import BLSError, count

from .puzzle_check import PuzzleCheck
from .puzzle_entry import Puzzle, puzzle
from .puzzle_text import puzzle_names, read_puzzle

_EVERY = 0.5  # seconds
_SOLVED = "solved.json"  # the names of solved puzzles
# The notebooks of the course and the models that they load are in the package if it is installed, else in the clone.
_INSTALLED, _CLONE = Path(__file__).with_name("data"), Path(__file__).parents[2]
_PATTERNS = ("notebooks/*.ipynb", "notebooks/meter_reading/**/*", "model_repository/**/*")


def _write(folder: Path, seed: int) -> dict[str, Path]:
    """Write a folder for each puzzle, without changing files that exist; return the model files by puzzle."""
    models = {}
    for name in puzzle_names():
        task = puzzle(name, seed)
        place = folder / f"{task.number:02}_{name}"
        place.mkdir(parents=True, exist_ok=True)
        models[name] = place / "model.py"
        for file, text in (("model.py", task.naive.source), ("README.md", _readme(task))):
            if not (place / file).exists():
                (place / file).write_text(text, "utf-8")
    return models


def _readme(task: Puzzle) -> str:
    constraints = "\n".join(f"- `{claim}`" for claim in ("same answers", *task.constraints))
    callees = "\n\n".join(f"## {m.name}\n\n```python\n{m.source}```" for m in task.callees)
    model = f"`{task.naive.signature}`"
    return f"# {task.number}. {task.title}\n\n{task.story}\n\n{constraints}\n\n{model}\n\n{callees}\n"


class _Learner:
    """The files of a learner, and which puzzles are solved."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._seed, self._record = seed, folder / _SOLVED
        self._models = _write(folder, seed)
        self._naive = {name: puzzle(name, seed).naive.source for name in self._models}
        self._checked: dict[str, float] = {}
        try:
            self._solved = set(json.loads(self._record.read_text("utf-8"))) & set(self._models)
        except (OSError, ValueError, TypeError):
            self._solved = set()

    def saved_last(self) -> str:
        """Return the puzzle whose model was saved last, has not been checked since, and is not naive; else empty."""
        times = {name: file.stat().st_mtime for name, file in self._models.items() if file.exists()}
        new = [name for name in times if times[name] != self._checked.get(name)]
        new = [name for name in new if self._text(name).strip() not in ("", self._naive[name].strip())]
        return max(new, key=times.__getitem__, default="")

    def skip_old(self) -> None:
        """Do not check the files as they are now, except the one that was saved last."""
        last = self.saved_last()
        self._checked = {name: file.stat().st_mtime for name, file in self._models.items() if name != last}

    def _text(self, name: str) -> str:
        return self._models[name].read_text("utf-8", errors="replace")

    def check(self, name: str) -> Generator[PuzzleCheck, None, None]:
        """Check a model, yield the result, and print what to do next."""
        file = self._models[name]
        self._checked[name] = file.stat().st_mtime
        print(f"\n{file.parent.name}/{file.name}\n")
        result = puzzle(name, self._seed).check(self._text(name))
        yield result
        (self._solved.add if result else self._solved.discard)(name)
        self._record.write_text(json.dumps(sorted(self._solved)) + "\n", "utf-8")
        self.say_next(name if not result else "")

    def _known(self, name: str) -> Path:
        if name not in self._models:
            raise BLSError(f"puzzle: got {name!r}, expected one of {', '.join(self._models)}")
        return self._models[name]

    def reset(self, name: str) -> None:
        """Write the naive model again, and keep the learner's under another name."""
        file = self._known(name)
        if file.exists():
            kept = next(f for n in range(1, 10_000) if not (f := file.with_name(f"model_{n}.py")).exists())
            file.rename(kept)
            print(f"Your model is now {kept.name}.")
        file.write_text(self._naive[name], "utf-8")
        print(f"{file.parent.name}/{file.name} is the naive model again.")

    def say_all(self) -> None:
        """Print the puzzles, and which are solved."""
        for name, file in self._models.items():
            print(f"{'✓' if name in self._solved else '·'} {file.parent.name:16} {puzzle(name, self._seed).title}")
        print(f"\n{len(self._solved)} of {len(self._models)} puzzles solved.")

    def say_hint(self, name: str) -> None:
        """Print the puzzle's hint, and the lines of the naive model that the reference solution changes."""
        self._known(name)
        data = read_puzzle(name, self._seed)
        before, after = (text.splitlines() for text in (data.naive.source, data.solution))
        changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        lines = [first + 1 for kind, first, _, _, _ in changes if kind != "equal"]
        print(data.story, *filter(None, [data.hint]), sep="\n\n")
        print(f"\nThe solution changes the naive model at {count(len(lines), 'place')}: line", *lines)

    def say_next(self, unsolved: str = "") -> None:
        """Print the progress and the next step."""
        print(f"\n{len(self._solved)} of {len(self._models)} puzzles solved.")
        name = unsolved or next((name for name in self._models if name not in self._solved), "")
        if not name:
            print("All are solved. Share a card: %%blspuzzle NAME --card FILE in a notebook.")
            return
        task = puzzle(name, self._seed)
        place = self._models[name].parent.name
        print(f"Next: edit {place}/model.py and save it. {place}/README.md has the story of “{task.title}”.")


def _course_files() -> Iterator[tuple[Path, Path]]:
    """Yield each file of the course, and its place below the course's folder."""
    root = _INSTALLED if _INSTALLED.is_dir() else _CLONE
    for file in sorted(file for pattern in _PATTERNS for file in root.glob(pattern)):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, file.relative_to(root)


def _write_course(folder: Path) -> int:
    """Write the course into a folder, without changing files that exist; return the number of new files."""
    written = 0
    for file, place in _course_files():
        target = folder / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            written += 1
    return written


def _learn(
    folder: str = "puzzles", once: bool = False, seed: int = 0, list_all: bool = False, hint: str = "", reset: str = "",
    course: str = "",
) -> Generator[PuzzleCheck, None, None]:  # fmt: skip
    try:
        if course:
            written = _write_course(Path(course))
            print(f"{count(written, 'file')} written. Begin with: jupyter lab {Path(course) / 'notebooks/index.ipynb'}")
            return
        learner = _Learner(Path(folder), seed)
        if reset:
            learner.reset(reset)
    except OSError as error:
        raise BLSError(f"folder: {error}") from None
    if list_all:
        learner.say_all()
    if hint:
        learner.say_hint(hint)
    if list_all or hint or reset:
        return
    if once:
        last = learner.saved_last()
        if last:
            yield from learner.check(last)
            return
        learner.say_next()
        sys.exit(1)
    print(f"Puzzles in {folder}. This command checks a model.py when you save it; Ctrl-C ends it.")
    learner.skip_old()
    if not learner.saved_last():
        learner.say_next()
    try:
        while True:
            changed = learner.saved_last()
            if changed:
                yield from learner.check(changed)
            else:
                time.sleep(_EVERY)
    except KeyboardInterrupt:
        print()
        sys.exit(0)


LEARN = OperationSpec(
    """Solve the puzzles of the course in an editor. The command writes a folder for each puzzle, and checks a
    model.py when you save it, until Ctrl-C. With --course it writes the notebooks of the course.""",
    options=(
        option("folder", "FOLDER", "a folder for the puzzles, made if it is missing (default: puzzles)", nargs="?"),
        flag("--once", "check the model that was saved last, and end: 0 if it solves its puzzle, else 1"),
        flag("--list", "list the puzzles, and which are solved", dest="list_all"),
        option("--hint", "PUZZLE", "say what the models of a puzzle should do, and which lines the solution changes"),
        option("--course", "FOLDER", "write the notebooks of the course and the models that they load into a folder"),
        option("--reset", "PUZZLE", "write the naive model of a puzzle again; yours is kept beside it"),
        option("--seed", "N", "a variant of the puzzles: other names, values and sizes (default: 0)", whole_number(0)),
    ),
    shell=_learn,
    failed=lambda check: not check,
)
