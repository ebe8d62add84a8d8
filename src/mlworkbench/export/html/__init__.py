"""Export runs as a self-contained HTML file."""
