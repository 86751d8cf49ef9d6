"""Deadlocks: the graph of who waits for what, the search in it, and the log's reports of long waits."""
