"""The inspector: contents of tensors, responses, models and requests, as records."""
