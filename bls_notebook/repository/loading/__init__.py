"""Loading a version: config, code, instances, warm-up, in Triton's order."""
