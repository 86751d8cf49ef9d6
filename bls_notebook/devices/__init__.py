"""Where tensors live: the memory of each device, and what moves between them."""
