"""Fails while loading."""


class TritonPythonModel:
    def initialize(self, args):
        raise ValueError(f"version {args['model_version']} is not to be loaded")

    def execute(self, requests):
        return []
