"""Profiles of requests: sync compared with async, dependences of calls, and the smallest setting."""
