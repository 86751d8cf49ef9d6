"""`puzzle()` returns a puzzle of the course, whose `Puzzle.check` judges a replacement of its naive model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from .puzzle_check import PuzzleCheck
from .puzzle_text import PuzzleData, read_puzzle
from .puzzle_worker import check


@dataclass(frozen=True, slots=True, repr=False)
class Puzzle(PuzzleData):
    """A puzzle: a ``story``, ``constraints`` (claims of `bls.judge`), the naive model and a reference ``solution``,
    which is empty for a variant (``seed``): graders use variants.

    ``callees`` are the models that the naive model calls. ``requests`` describe the generated requests, a line for each
    input; ``measured`` are the requests, as JSON, for which the constraints are judged. ``hint`` is shown for answers
    that differ in what ``hint_pattern`` matches.
    """

    def check(self, source: str) -> PuzzleCheck:
        """Judge a replacement of the naive model, in a process of its own.

        Parameters
        ----------
        source : str
            Text of a model.py.

        Returns
        -------
        PuzzleCheck
            True if the replacement gives the same answers and every constraint holds. Its display shows the mistake in
            the timeline or the lifetimes, next to the reference solution's.

        Raises
        ------
        BLSError
            hypothesis, which generates the requests, is not installed.
        """
        return check(self.name, self.seed, source)


def puzzle(name: str, seed: int = 0) -> Puzzle:
    """Return a puzzle of the course by its name.

    Parameters
    ----------
    name : str
        Such as ``"gather"``.
    seed : int
        Other seeds than 0 choose other names, values, sizes and costs, so that each class or learner has a variant.

    Raises
    ------
    BLSError
        No puzzle has this name.

    Examples
    --------
    >>> check = bls.puzzle("gather").check(Path("model.py").read_text())
    >>> assert check, check
    """
    data = read_puzzle(name, seed)
    data = replace(data, solution="") if seed else data
    return Puzzle(**{field.name: getattr(data, field.name) for field in fields(data)})
