"""Find independent calls of a model by counterfactual replay, and write the program that gathers them."""
