"""What profiles record: sessions, their spans, comparisons, and the program of a run."""
