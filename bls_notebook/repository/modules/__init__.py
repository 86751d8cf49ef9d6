"""The Python modules of models: each instance has its own, and each name leads to the right one."""
