"""What is computed from records: pure functions, nothing that runs or draws."""
