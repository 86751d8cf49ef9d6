"""A module in a package beside the model."""

from . import __name__ as package

SEVEN = 7
WHERE = package
