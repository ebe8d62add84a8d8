"""Export runs with all their data to an MLflow server."""
