"""Triton's schedulers, which decide when an instance runs which requests, and the response cache."""
