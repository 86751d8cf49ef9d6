"""Loading a version in Triton's order: configuration, code, instances, warm-up."""
