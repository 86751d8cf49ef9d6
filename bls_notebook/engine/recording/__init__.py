"""What profiles and memory tracks are told while they are on."""
