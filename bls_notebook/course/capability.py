"""Registration of the course: magics and completions."""

from bls_notebook.extending import Capability

CAPABILITY = Capability(
    "course",
    needs=("testing", "profiling", "lifetimes"),
    magics={
        "%blscheck": ".check_magic:LINE_MAGIC",
        "%%blscheck": ".check_magic:CELL_MAGIC",
        "%%blsguess": ".guess_magic:MAGIC",
    },
    completions={"CLAIM": ".check_magic:next_words"},
)
