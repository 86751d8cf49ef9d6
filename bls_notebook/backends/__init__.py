"""How an instance executes requests: one module a backend, one protocol."""
