"""The files of a model: folders in Triton's layout, names, source from cells, and what is found in it."""
