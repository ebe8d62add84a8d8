"""What will not work on the target, found before anything is sent there: in the dependencies and in the script."""
