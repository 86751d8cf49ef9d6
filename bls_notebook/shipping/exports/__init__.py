"""Models on their way out: a model repository as Triton wants it, with what it takes to serve it."""
