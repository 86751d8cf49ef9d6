"""Reading the lines of magics: words, options, expressions."""
