"""Profiles of requests: sync compared with async, dependences between calls, and the smallest setting."""
