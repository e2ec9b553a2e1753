"""Exercise e08: predict how long an epoch takes on machines that you do not have.

In each step of data-parallel training, every rank computes gradients, and then all ranks sum them. Here p ranks sum
them in a ring. The ring has 2 (p - 1) rounds. In each round every rank sends a chunk of the gradients to the next rank,
and receives a chunk from the previous rank. A round ends when its slowest message has arrived. So a few numbers are
enough to predict the time of a step, with pen and paper.

Check it with `mpcourse check e08_predict_epoch`. Stuck? `mpcourse hint e08_predict_epoch`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Return the seconds of one epoch of data-parallel training, in which a ring sums the gradients in each step.

    examples: the number of examples in the training set, which all ranks share. batch: the number of examples of each
    rank in a step. The last step of an epoch may have fewer examples, but it takes as long as any other.
    ranks: the number of ranks, one per GPU, on `nodes` machines, with equally many ranks on each. Ranks are numbered
    node by node. In the ring, rank 0 comes after the last rank.
    compute: the seconds for which every rank computes in a step. Nothing is sent during this time.
    nbytes: the bytes of all gradients of one rank. In each round of the ring every rank sends nbytes / ranks bytes.
    inside, between: the link between two ranks of the same node, and between two ranks of different nodes. Each is a
    pair: the latency in seconds, and the bandwidth in bytes per second. A message of n bytes takes
    latency + n / bandwidth.
    Returns a float. One rank alone sends nothing.
    Raises ValueError if ranks is not a multiple of nodes.
    """
    # solution: count steps; find the links that the ring uses, and the slowest message of a round
    if ranks % nodes:
        raise ValueError(f"{ranks} ranks on {nodes} nodes: each node needs as many as the others")
    steps = -(-examples // (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((latency + nbytes / ranks / bandwidth for latency, bandwidth in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)
    # end of solution
