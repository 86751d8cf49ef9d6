"""Random systems of models, run by the simulation."""

from __future__ import annotations

from hypothesis import strategies as st

from bls_notebook.profiling.session import Session
from tests.profiling.simulated import Model, Step, session

NAMES = "abcde"


@st.composite
def systems(draw: st.DrawFn) -> tuple[dict[str, Model], list[Step]]:
    """Models that call only later ones (so that nothing waits for ever), and a notebook that calls them."""

    def steps(callees: str) -> list[Step]:
        work: st.SearchStrategy[Step] = st.integers(0, 20)
        if callees:
            name = st.sampled_from(callees)
            gather = st.lists(name, min_size=1, max_size=4).map(tuple)
            work = st.one_of(work, name, gather)
        return draw(st.lists(work, max_size=4))

    count = draw(st.integers(1, len(NAMES)))
    names = NAMES[:count]
    models = {
        name: Model(steps(names[at + 1 :]), draw(st.integers(1, 3)), batch=draw(st.sampled_from([1, 1, 4])))
        for at, name in enumerate(names)
    }
    return models, steps(names)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    models, notebook = draw(systems())
    return session(models, *notebook, after=draw(st.integers(0, 10)))
