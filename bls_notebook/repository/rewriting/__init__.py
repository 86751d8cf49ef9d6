"""Rewrites a model so that calls which do not depend on one another are in flight together: text to text.

Nothing is run. What cannot be seen to be safe is not changed, and the reason is told.
"""
