"""Proof: the same requests here and on a real server, and the differences of their answers."""
