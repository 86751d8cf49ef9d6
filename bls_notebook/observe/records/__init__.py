"""What was observed, as frozen plain data that goes into JSON and back."""
