"""Versions of what both sides exchange."""

PROTOCOL = 1  # requests to an agent, and its answers
SPEC = 1  # of a run: ``spec.json``
