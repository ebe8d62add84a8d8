"""Environments here: which one a lock means (environment.py), how it is built (build.py), what becomes of it."""
