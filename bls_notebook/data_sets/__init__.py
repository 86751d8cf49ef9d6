"""The inspector (`inspect`), tables of tensors' differences, statistics and devices, and the live panel (`watch`)."""
