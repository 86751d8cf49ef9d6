"""Records: frozen plain data. Nothing here draws or runs a model."""
