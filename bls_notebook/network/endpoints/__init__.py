"""The gateway: serves the models of this process over KServe v2, HTTP and gRPC, on loopback."""
