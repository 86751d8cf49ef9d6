"""Sources of models: folders in Triton's layout, cells, names, fingerprints, and checks of the code."""
