"""Records of profiles: sessions, spans, comparisons, verdicts."""
