"""The endpoint: the models of this process over the KServe v2 protocol, HTTP and gRPC, on loopback."""
