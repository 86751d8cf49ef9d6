"""Displays of profiles: summary, call graph, comparison, tuning."""
