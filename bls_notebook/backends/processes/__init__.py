"""Instances as processes: the worker, the messages between it and the kernel, and the backend."""
