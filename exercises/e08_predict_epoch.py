"""Exercise e08: how long is an epoch, before anybody buys a second machine?

Data parallelism adds one thing to a step: the sum of gradients over all ranks. Here it is a ring. Of p ranks each sends
a chunk of the gradients to its right neighbour, and receives one from its left, in 2 (p - 1) rounds. A round is over
when the slowest message has arrived. So what a step takes can be told from a few numbers, with pen and paper.

Check it with `mpcourse check e08_predict_epoch`. Stuck? `mpcourse hint e08_predict_epoch`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch of data-parallel training: of steps that compute, and then sum gradients by a ring.

    examples: of the training set, which all ranks share. batch: of each rank. The last step of an epoch may have fewer
    examples, and takes as long as any other.
    ranks: one a GPU, on `nodes` machines, with as many ranks on each. They are numbered node by node; the right
    neighbour of the last rank is rank 0.
    compute: seconds that every rank computes in a step, whatever the others do. Nothing is hidden behind it.
    nbytes: of all gradients together. In each round of the ring every rank sends nbytes / ranks bytes.
    inside, between: the links of two ranks on one node, and of two ranks on different nodes. Each is a pair of latency
    in seconds and bandwidth in bytes per second: a message of n bytes takes latency + n / bandwidth.
    Returns a float. One rank alone sends nothing.
    Raises ValueError where ranks is no multiple of nodes.
    """
    raise NotImplementedError("e08_predict_epoch: count steps; find the links that the ring uses, and the slowest message of a round")
