"""Components used to build the pages."""
