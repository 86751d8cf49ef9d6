"""Kserve."""
