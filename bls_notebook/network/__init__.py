"""Models over the network: the KServe protocol, connections to servers, and the gateway for clients."""
