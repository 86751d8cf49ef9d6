"""The smallest setting that gets there: what work uses, how it shares the processors, and the search."""
