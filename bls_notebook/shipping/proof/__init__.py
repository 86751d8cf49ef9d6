"""The same requests in this process and on a real server, and what differs."""
