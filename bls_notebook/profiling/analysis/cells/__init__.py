"""What a profile of a cell says of its requests: pure functions of the session."""
