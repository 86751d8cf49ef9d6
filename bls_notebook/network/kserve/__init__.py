"""The KServe v2 protocol, as clients and servers use it."""
