"""Metrics of scripts that know nothing of us: TensorBoard's event files, and lines that the script prints."""
