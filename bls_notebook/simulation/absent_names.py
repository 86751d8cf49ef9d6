"""`ABSENT`: the names of NumPy's modules that CuPy (14.2) lacks."""

_NAMES = {
    "numpy": """
        False_ ScalarType True_ asmatrix block bmat busday_count busday_offset busdaycalendar bytes_ character
        clongdouble complex256 datetime64 datetime_as_string datetime_data einsum_path errstate flexible
        float128 frompyfunc fromregex geomspace get_include getbufsize geterr geterrcall histogram_bin_edges
        info insert is_busday isnat little_endian longdouble matrix matvec memmap nanpercentile nanquantile
        ndenumerate nditer nested_iters object_ polyder polydiv polyint recarray record sctypeDict setbufsize
        seterr seterrcall show_runtime spacing str_ test timedelta64 typecodes unstack vecdot vecmat void
    """,
    "numpy.linalg": """
        diagonal matrix_norm multi_dot outer svdvals tensordot test trace vecdot vector_norm
    """,
    "numpy.fft": """
        test
    """,
    "numpy.random": """
        Generator MT19937 PCG64 PCG64DXSM Philox SFC64 SeedSequence get_bit_generator get_state
        set_bit_generator set_state test
    """,
}
ABSENT = {module: frozenset(names.split()) for module, names in _NAMES.items()}
