"""Simulated GPUs: host memory that behaves as a GPU's, for machines that have none."""
