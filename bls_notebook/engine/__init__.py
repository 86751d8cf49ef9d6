"""The path of a request: models and instances, schedulers, tensors, waits, failures and recording."""
