"""Choose, resolve, and describe the Python environment of a run."""
