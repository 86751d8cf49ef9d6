"""The inspector (`inspect`) and the live panel of a repository (`watch`)."""
