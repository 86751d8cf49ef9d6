"""What others recorded, as our records."""
