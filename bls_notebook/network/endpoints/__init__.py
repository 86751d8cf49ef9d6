"""Endpoints: serve the models of this process on loopback, over HTTP and gRPC (KServe v2 protocol)."""
