"""Registration of the course: magics, completions and puzzles."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "course",
    needs=("testing", "profiling", "lifetimes"),
    names={"puzzle": ".puzzle_entry:puzzle"},
    types={"Puzzle": ".puzzle_entry:Puzzle", "PuzzleCheck": ".puzzle_check:PuzzleCheck"},
    magics={
        "%blscheck": ".check_magic:LINE_MAGIC",
        "%%blscheck": ".check_magic:CELL_MAGIC",
        "%%blsguess": ".guess_magic:MAGIC",
        "%blspuzzle": ".puzzle_magic:LINE_MAGIC",
        "%%blspuzzle": ".puzzle_magic:CELL_MAGIC",
    },
    commands={"learn": ".learn_command:LEARN"},
    completions={"CLAIM": ".check_magic:next_words", "PUZZLE": ".puzzle_magic:next_puzzles"},
    displays={
        ".puzzle_check:PuzzleCheck": Drawing(".puzzle_check:check_document", widget=".puzzle_check:check_widget"),
        ".puzzle_entry:Puzzle": Drawing(".puzzle_check:puzzle_document"),
    },
)
