"""Completion with Tab and help with Shift-Tab: in lines of magics, in config.pbtxt, and in code of models."""
