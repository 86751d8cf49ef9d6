"""A memory track as text, HTML, a figure, and a widget, each made of the record alone."""
