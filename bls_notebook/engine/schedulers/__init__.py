"""Who runs when: the schedulers of Triton, and the response cache in front of them."""
