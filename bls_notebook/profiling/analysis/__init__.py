"""Analyses of records: pure functions that neither run models nor draw."""
