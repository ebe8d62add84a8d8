"""Metric series of runs, stored for fast charts of millions of points."""
