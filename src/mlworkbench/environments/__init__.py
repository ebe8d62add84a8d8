"""Which Python runs the script."""
