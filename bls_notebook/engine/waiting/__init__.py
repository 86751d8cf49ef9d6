"""Waits of threads and event loops, the clock, and Ctrl-C."""
