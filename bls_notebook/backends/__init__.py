"""Backends, which execute the requests of an instance: their protocol, the registry, and the Python backend."""
