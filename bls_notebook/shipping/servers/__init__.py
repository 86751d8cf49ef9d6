"""The real tritonserver beside the notebook: environment, process, container."""
