"""What a run must hold before it starts, such as GPUs; ``resource.py`` says what all resources have in common."""
