"""Waits of threads and event loops, deadlock detection, and Ctrl-C."""
