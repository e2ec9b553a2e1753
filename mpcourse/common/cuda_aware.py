"""Find out whether MPI itself reads and writes the memory of CUDA GPUs."""

import ctypes
import functools


@functools.cache
def cuda_aware() -> bool:
    """Return whether the MPI library behind mpi4py says that it is CUDA-aware.

    Call this on ranks only: MPICH answers only a process that is a rank.
    """
    from mpi4py import MPI

    try:
        return bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
    except (OSError, AttributeError):
        return False
