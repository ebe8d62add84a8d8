"""How the user's command line is made from script, arguments and interpreter."""
