"""Runs for other programs and other people: CSV, JSON, one HTML page, a real MLflow server. Reads only."""
