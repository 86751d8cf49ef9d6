"""Ship models to Triton servers: export, serve on a local tritonserver, prove equal answers."""
