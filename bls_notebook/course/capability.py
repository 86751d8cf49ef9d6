"""Registration of the course: magics, completions, cases and puzzles."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "course",
    needs=("testing", "profiling", "lifetimes"),
    names={"case": ".case_entry:case", "puzzle": ".puzzle_entry:puzzle"},
    types={
        "CourseCase": ".case_entry:CourseCase",
        "CaseCheck": ".case_entry:CaseCheck",
        "Puzzle": ".puzzle_entry:Puzzle",
        "PuzzleCheck": ".puzzle_check:PuzzleCheck",
        "ClassGrades": ".class_grades:ClassGrades",
    },
    magics={
        "%blscase": ".case_magic:CASE",
        "%blscheck": ".check_magic:CHECK_LAST",
        "%%blscheck": ".check_magic:CHECK_CELL",
        "%%blsguess": ".guess_magic:GUESS",
        "%blspuzzle": ".puzzle_magic:SHOW",
        "%%blspuzzle": ".puzzle_magic:CHECK",
    },
    commands={"grade": ".grade_command:GRADE", "learn": ".learn_command:LEARN"},
    completions={
        "CASE": ".case_magic:next_cases",
        "CAUSE": ".case_magic:next_causes",
        "CLAIM": ".check_magic:next_words",
        "PUZZLE": ".puzzle_magic:next_puzzles",
    },
    displays={
        ".case_display:CaseScores": Drawing(".case_display:scores_document"),
        ".case_entry:CourseCase": Drawing(".case_display:case_document"),
        ".case_entry:CaseCheck": Drawing(".case_display:case_check_document"),
        ".class_grades:ClassGrades": Drawing(".class_grades:grades_document"),
        ".puzzle_check:PuzzleCheck": Drawing(".puzzle_check:check_document", widget=".puzzle_check:check_widget"),
        ".puzzle_entry:Puzzle": Drawing(".puzzle_check:puzzle_document"),
    },
)
