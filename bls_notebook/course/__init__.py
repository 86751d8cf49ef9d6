"""Exercises for learners: guess first, then check."""
