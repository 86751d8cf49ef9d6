"""Sweeps: throughput and latency of a model under loads and settings."""
