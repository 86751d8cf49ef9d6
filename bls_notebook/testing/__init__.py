"""Test models: assertions for pytest and unittest, recordings with replay, and drills; see `docs/guides/testing.md`.

pytest has the fixture `triton_repository`, unittest the class `TritonTestCase`. Importing this package imports
neither.
"""
