"""Who waits for what: threads, event loops, futures, and the deadlocks among them; Ctrl-C."""
