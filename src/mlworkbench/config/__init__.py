"""Read, validate, edit, and create project files: ``aml_config`` and project templates."""
