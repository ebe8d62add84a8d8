"""Runs into a MLflow server, with everything that they have."""
