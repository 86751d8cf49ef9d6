"""Recordings: requests with their tensors in a file, and their replay."""
