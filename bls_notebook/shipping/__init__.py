"""What left for a server, and what was proven of it."""
