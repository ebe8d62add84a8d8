"""What watches a run beside its supervisor, one file per companion; ``companion.py`` is what all have in common."""
