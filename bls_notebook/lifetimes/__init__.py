"""Memory recordings: the lifetime of every tensor, its owners, and leaks."""
