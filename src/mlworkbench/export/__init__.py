"""Read-only exports of runs: CSV, JSON, a single HTML page, and an MLflow server."""
