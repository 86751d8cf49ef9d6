"""Whether a model answers the same requests again in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.repository import sequence_options

from .comparison import ProofAnswer, differences
from .requests import ProofCase, ProofRequest
from .targets import LocalTarget, RemoteTarget


def answers_of(
    target: LocalTarget, cases: Sequence[ProofCase], correlations: Sequence[int] = ()
) -> list[list[ProofAnswer]]:
    """Return the answers of a target to each request of these cases, in order.

    The correlation IDs of sequences are the same each time, because a model may answer with them.
    """
    answers = []
    for correlation, case in zip(correlations or range(1, len(cases) + 1), cases, strict=True):
        for step, request in enumerate(case):
            answers.append(target.ask(request, sequence_options(target.spec, correlation, step, len(case)))[0])
            if lost := [answer.error for answer in answers[-1] if answer.lost]:
                raise UnansweredError(request, str(lost[0]))
    return answers


class UnansweredError(BaseException):
    """A request got no answer. Not an `Exception`, because hypothesis would try to reproduce those."""

    def __init__(self, request: ProofRequest, text: str) -> None:
        super().__init__(text)
        self.request = request


def compared_with_itself(target: LocalTarget, cases: Sequence[ProofCase]) -> tuple[tuple[str, ...], bool]:
    """Return how the answers of two fresh instances differ, and whether answers depend on earlier requests."""
    while True:
        with target.fresh() as revealed:
            first, again = answers_of(target, cases), answers_of(target, cases)
        if not revealed:
            break
    with target.fresh():
        second = answers_of(target, cases)
    if lines := variation_of(target, first, second):
        return lines, False
    return (), any(differences(*pair).lines for pair in zip(first, again, strict=True))


def variation_of(
    target: LocalTarget, first: Sequence[list[ProofAnswer]], second: Sequence[list[ProofAnswer]]
) -> tuple[str, ...]:
    """Return how answers of one target to the same requests differ; empty if they are equal."""
    place = "on the server" if isinstance(target, RemoteTarget) else "here"
    for answers, others in zip(first, second, strict=True):
        if lines := differences(answers, others, sides=("the first time", "the second time")).lines:
            return tuple(f"{place}: {line}" for line in lines)
    return ()
