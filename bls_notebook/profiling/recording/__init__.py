"""Recording of a profile: spans, samplers of locks, processor and GPU time."""
