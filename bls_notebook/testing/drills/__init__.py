"""Drills: what a model does while the models that it calls fail, stall, or answer nonsense."""
