"""Requests with their tensors, kept in a file and sent again."""
