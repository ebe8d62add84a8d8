"""The rank of a process: its number among the processes of one script."""

# Variables for the rank and for the number of processes: torchrun and accelerate, Open MPI, MPICH and Intel MPI, Slurm.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
MAX_RANK = 99999


def read_rank(environ):
    """Return the rank; 0 if there is only one process, so that a variable which is set by chance has no effect."""
    for rank_name, size_name in _VARIABLES:
        rank, size = environ.get(rank_name, ""), environ.get(size_name, "")
        if rank.isdigit() and size.isdigit() and len(rank) < 6 and int(size) > 1 and int(rank) < int(size):
            return min(int(rank), MAX_RANK)
    return 0
