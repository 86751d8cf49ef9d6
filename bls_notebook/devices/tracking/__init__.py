"""Memory tracking: the ledger of blocks, their lives, and who holds them."""
