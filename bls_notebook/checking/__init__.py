"""What will bite in a repository's configurations, sources and folders: a module for each subject.

Nothing is imported or run of a model: sources are read as trees. What cannot be told for certain is not told.
"""
