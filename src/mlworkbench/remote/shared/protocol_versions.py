"""Versions of the formats that client and target exchange."""

PROTOCOL = 1  # agent requests and answers
SPEC = 1  # ``spec.json``
