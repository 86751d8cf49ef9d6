"""Sync against async, measured: `bls.compare` and its parts."""
