"""What to do about an error: pure functions from what is known of it to one line, with code to paste.

Asked when an error is shown, never when it happens.
"""
