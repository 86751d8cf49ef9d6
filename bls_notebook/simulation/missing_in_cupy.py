"""Names of NumPy that CuPy (14.2) lacks; simulated GPUs lack them too, as a model would fail on real ones."""

from __future__ import annotations

_NUMPY = """
    False_ ScalarType True_ asmatrix block bmat busday_count busday_offset busdaycalendar bytes_ character
    clongdouble complex256 datetime64 datetime_as_string datetime_data einsum_path errstate flexible float128
    frompyfunc fromregex geomspace get_include getbufsize geterr geterrcall histogram_bin_edges info insert
    is_busday isnat little_endian longdouble matrix matvec memmap nanpercentile nanquantile ndenumerate nditer
    nested_iters object_ polyder polydiv polyint recarray record sctypeDict setbufsize seterr seterrcall
    show_runtime spacing str_ test timedelta64 typecodes unstack vecdot vecmat void
"""
_LINALG = "diagonal matrix_norm multi_dot outer svdvals tensordot test trace vecdot vector_norm"
_RANDOM = """
    Generator MT19937 PCG64 PCG64DXSM Philox SFC64 SeedSequence get_bit_generator get_state set_bit_generator
    set_state test
"""

ABSENT: dict[str, frozenset[str]] = {
    "numpy": frozenset(_NUMPY.split()),
    "numpy.linalg": frozenset(_LINALG.split()),
    "numpy.fft": frozenset({"test"}),
    "numpy.random": frozenset(_RANDOM.split()),
}
"""By NumPy's modules."""


def is_absent(module: str, name: str) -> bool:
    """Whether CuPy lacks this function."""
    return name in ABSENT.get(module, ())
