class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("refuses " + args["model_name"])
