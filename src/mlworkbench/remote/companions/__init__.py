"""Companions, which watch a run alongside its supervisor. ``companion.py`` defines their interface."""
