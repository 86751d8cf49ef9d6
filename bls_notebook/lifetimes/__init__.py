"""Memory recordings: the lifetimes of tensors, their owners, and leaks."""
