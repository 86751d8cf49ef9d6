"""What was observed, as frozen plain data. Nothing here draws, and nothing here runs a model."""
