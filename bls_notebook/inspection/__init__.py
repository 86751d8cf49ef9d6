"""What the inspector finds out of tensors, responses and models, and tells as records."""
