"""Compute types, as rows of a table: host, starter, wrapper."""
