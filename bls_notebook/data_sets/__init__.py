"""Answers to whole data sets: a model as a picklable function of rows, and `map`, here or on a Dask cluster."""
