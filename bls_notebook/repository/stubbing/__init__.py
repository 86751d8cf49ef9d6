"""`ModelRepository.stub`: a model whose requests are answered by something else for a while."""
