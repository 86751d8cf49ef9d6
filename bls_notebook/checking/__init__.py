"""`check`: find problems in a repository's configurations, sources and folders without running models.

Sources are read as syntax trees; nothing is imported. Only certain problems are reported.
"""
