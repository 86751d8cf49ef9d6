"""The watch: a repository at one moment as a table, and live as a widget."""
