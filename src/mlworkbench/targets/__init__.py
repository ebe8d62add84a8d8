"""Compute types, opened targets, checks, and containers."""
