"""Records of what tests are made of: requests that were kept, sent again, or answered in place of a model."""
