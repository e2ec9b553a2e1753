"""Whether MPI reads and writes the memory of CUDA GPUs by itself."""

import ctypes
import functools


@functools.cache
def cuda_aware() -> bool:
    """Whether the MPI behind mpi4py is CUDA-aware, as its library says. For ranks only: MPICH tells no one else."""
    from mpi4py import MPI

    try:
        return bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
    except (OSError, AttributeError):
        return False
