"""Exercises for learners: guess a result first, then check it."""
