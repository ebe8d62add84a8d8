"""Metrics of scripts that do not use the in-run library: TensorBoard event files and printed lines."""
