"""Calls of an `execute` that are sent ahead: `exec` answers at once, with a response to be waited for."""
