"""What magics show: displays, live responses, the log under a cell."""
