"""Spark support on the target: preflight checks, application monitoring, and executor environments."""
