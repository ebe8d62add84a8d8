"""Submit runs and work with them. Shared by the command line, Python programs, and notebooks."""
