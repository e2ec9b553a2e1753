"""The flat communicator: all gradients in one row, and one sum."""

from mpcourse.data_parallel.communicator import Communicator


class FlatCommunicator(Communicator):
    """Packs all gradients into one row and sums that: the latency of one sum, at the cost of one copy."""

    name = "flat"
