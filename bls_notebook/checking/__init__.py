"""`check`: find problems in a repository's configurations, sources and folders without running models.

It reads sources as syntax trees and imports none of them. Only certain problems are reported.
"""
