"""Which project files travel, their digests, and the store that keeps their content."""
