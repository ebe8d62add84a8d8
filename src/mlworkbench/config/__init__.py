"""The project's files on disk, as values and back: aml_config, the project itself, its templates."""
