"""``%tritonrepo VERB``: looking after the current repository."""
