"""The KServe v2 protocol over HTTP and gRPC, for clients and servers."""
