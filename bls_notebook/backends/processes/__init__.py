"""Instances in processes of their own: the worker, the messages between it and the kernel, and the backend."""
