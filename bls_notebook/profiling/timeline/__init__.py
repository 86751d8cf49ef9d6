"""The timeline of one session, or of two on one axis: as text, a picture, a widget on top of it.

Nothing here imports matplotlib or anywidget before it is used, and without them the text stands in.
"""
