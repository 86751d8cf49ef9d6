"""The log of requests for profiles, and the lines of code for memory recordings."""
