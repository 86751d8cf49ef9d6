"""Models over the network: the KServe protocol, connections to servers, and endpoints for clients."""
