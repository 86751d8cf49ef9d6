"""Run a model with substituted callees: one mechanism for stubs, replay, drills and overlap analysis."""
