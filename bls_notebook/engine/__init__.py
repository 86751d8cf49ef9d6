"""What happens to a request: instances, schedulers, waits, isolation, failures."""
