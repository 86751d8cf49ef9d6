"""The timeline of one session, or of two on one axis: as text, as a picture, and as a widget that covers it.

Only `widget` imports anywidget; without it the picture and the text remain.
"""
