"""A module in a package beside the model."""

SEVEN = 7
