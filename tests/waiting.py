"""The one time limit of tests that wait for a condition: generous, because it only ends a hang."""

LIMIT = 100.0  # seconds; only a failing test waits so long, even on a busy machine
