"""What runs: models, their instances, one run of `execute`, and the server that knows the models."""
