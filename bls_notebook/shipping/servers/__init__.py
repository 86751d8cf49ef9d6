"""The way out: what connects this package with a real Triton server."""
