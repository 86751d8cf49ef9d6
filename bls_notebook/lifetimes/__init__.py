"""Lifetimes."""
