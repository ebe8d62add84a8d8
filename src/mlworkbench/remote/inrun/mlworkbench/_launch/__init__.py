"""Start and watch the processes of a script that a launcher such as torchrun starts."""
