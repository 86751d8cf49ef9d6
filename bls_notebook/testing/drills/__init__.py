"""Drills: run a model while its callees fail, stall or give wrong responses, and judge how it reacts."""
