"""Starters, which launch the supervisor of a run on a target; ``starter.py`` defines their interface."""
