"""The engine's state: models, instances, executions, counters, and the server with the models in service."""
