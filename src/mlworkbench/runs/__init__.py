"""Submitting runs and working with them: what the command line, Python programs, and notebooks share."""
