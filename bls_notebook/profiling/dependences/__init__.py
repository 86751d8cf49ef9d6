"""Which calls of a model depend on which answers, found by counterfactual replay; and the change to write."""
