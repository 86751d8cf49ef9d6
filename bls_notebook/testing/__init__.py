"""For people who test their own models: requests that are kept and sent again."""
