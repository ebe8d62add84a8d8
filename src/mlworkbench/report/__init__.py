"""Presentation of runs for users and programs, shared by the command line and the browser."""
