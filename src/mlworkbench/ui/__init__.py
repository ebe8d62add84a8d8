"""Web UI of ML Workbench: a local server with pages that correspond to the commands."""
