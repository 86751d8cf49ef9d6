"""Ensembles: what their steps are, who feeds whom, and one run of them."""
