"""Deadlocks: the wait graph, the search in it, and the log's reports of long waits."""
