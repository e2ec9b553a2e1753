"""Wrong answers to e08_predict_epoch. What a cell holds is told in tests/answers.py."""

# %% a_chunk_for_each_neighbour
# says: cut into as many chunks as there are ranks
# thinks: A rank keeps nothing of its own: ranks - 1 chunks.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / max(1, ranks - 1) / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% a_quarter_more_rounds
# says: In each step a ring of p ranks has 2 (p - 1) rounds
# thinks: Some messages are sent again.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2.5 * (ranks - 1) * slowest)


# %% always_one_step_more
# says: One step too many
# thinks: Rounding up is adding one.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = examples // (batch * ranks) + 1
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% as_many_rounds_as_ranks
# says: A ring has 2 (ranks - 1) rounds.
# thinks: Each rank sends once.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + (ranks * slowest if ranks > 1 else 0.0))


# %% average_of_links
# says: the average of links says nothing
# thinks: On average a message takes the mean of both.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    times = [a + nbytes / ranks / b for a, b in links]
    slowest = sum(times) / max(1, len(times))
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% between_is_always_slower
# says: Do not take for granted
# thinks: A network is slower than a bus.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    a, b = between if nodes > 1 else inside
    return steps * (compute + 2 * (ranks - 1) * (a + nbytes / ranks / b))


# %% between_only
# says: On one node no message goes between nodes
# thinks: The slow link is the one between nodes.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    a, b = between
    slowest = a + nbytes / ranks / b
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% bits
# says: nothing is to be multiplied by 8
# thinks: Networks count bits.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + 8 * nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% chunks_by_nodes
# says: as many chunks as ranks, not as nodes
# thinks: Nodes share the gradients.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / nodes / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% compute_only
# says: The sum of gradients takes time, too
# thinks: An epoch is its computing.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    return steps * compute


# %% compute_shrinks
# says: what shrinks is the number of steps
# thinks: p ranks compute p times as fast.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute / ranks + 2 * (ranks - 1) * slowest)


# %% computes_once
# says: Every step computes, not only the first
# thinks: The computing happens once, at the start.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return compute + steps * 2 * (ranks - 1) * slowest


# %% drops_the_last_batch
# says: left for a last, short step
# thinks: Batches that are not full are dropped.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = examples // (batch * ranks)
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% every_rank_sees_all
# says: All ranks together take batch x ranks examples
# thinks: An epoch is all examples, for each rank.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / batch)
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% fails_for_one_rank
# says: such a ring sends nothing
# thinks: A ring has neighbours.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest * (ranks - 1) / (ranks - 1))


# %% fastest_message
# says: has arrived, not the fastest
# thinks: A round is as fast as its fastest link.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = min((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% fraction_of_a_step
# says: There is no part of a step
# thinks: Time is proportional to examples.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = examples / (batch * ranks)
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% half_a_ring
# says: as many rounds again carry them to all
# thinks: p - 1 rounds go all the way round.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + (ranks - 1) * slowest)


# %% hidden_behind_compute
# says: Nothing is hidden here
# thinks: Communication overlaps.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * max(compute, 2 * (ranks - 1) * slowest)


# %% inside_only
# says: some of the messages travel between them
# thinks: Ranks are neighbours.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    a, b = inside
    slowest = a + nbytes / ranks / b
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% latency_of_one_bandwidth_of_the_other
# says: It is right where all messages take one link
# thinks: The first link gives the latency, the last the bandwidth.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = links[0][0] + nbytes / ranks / links[-1][1] if links else 0.0
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% latency_once
# says: has its latency, not only the first
# thinks: The latency of a stream counts once.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    ring = max((a + 2 * nbytes * (ranks - 1) / ranks / b for a, b in links), default=0.0)
    return steps * (compute + ring * (ranks > 1))


# %% less_bandwidth_is_slower
# says: need not be the slower one for a short message
# thinks: The link with less bandwidth is the slow one.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    a, b = min(links, key=lambda link: link[1], default=(0.0, 1.0))
    return steps * (compute + 2 * (ranks - 1) * (a + nbytes / ranks / b))


# %% mean_over_ranks
# says: however many fast ones there are
# thinks: Most messages stay inside.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    def message(link):
        return link[0] + nbytes / ranks / link[1]

    crossing = nodes if nodes > 1 else 0
    mean = (crossing * message(between) + (ranks - crossing) * message(inside)) / ranks
    return steps * (compute + 2 * (ranks - 1) * mean)


# %% milliseconds
# says: not in milliseconds
# thinks: Steps are told in ms.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return 1e3 * steps * (compute + 2 * (ranks - 1) * slowest)


# %% multiplies_by_bandwidth
# says: Bytes divided by bytes per second are seconds
# thinks: Bandwidth times bytes is time.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks * b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% no_latency
# says: A message takes its latency, too
# thinks: Bandwidth is what counts.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% numbers_of_four_bytes
# says: nbytes counts bytes already
# thinks: A float has 4 bytes.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + 4 * nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% once_an_epoch
# says: in every step, not once an epoch
# thinks: Gradients are summed at the end.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * compute + 2 * (ranks - 1) * slowest


# %% one_rank_waits
# says: One rank alone computes, and sends nothing
# thinks: A rank sends to itself.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes or ranks == 1 else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + max(1, 2 * (ranks - 1)) * slowest)


# %% one_round
# says: A ring has 2 (ranks - 1) rounds, and each has its messages
# thinks: All ranks send at the same time, once.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + (slowest if ranks > 1 else 0.0))


# %% one_step
# says: That is one step: an epoch has
# thinks: The time of a step is asked.
def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = 1
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% p_rounds_twice
# says: needs no further message
# thinks: Twice round the ring is 2 p.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + (2 * ranks * slowest if ranks > 1 else 0))


# %% prints
# says: Return the seconds of the epoch
# thinks: The result is shown.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    print(steps * (compute + 2 * (ranks - 1) * slowest))


# %% ranks_compute_in_turn
# says: Ranks compute at the same time, not in turn
# thinks: Each rank computes, so there is ranks times as much.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute * ranks + 2 * (ranks - 1) * slowest)


# %% ranks_send_in_turn
# says: not one for each rank
# thinks: Messages go one after the other.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * ranks * (ranks - 1) * slowest)


# %% refuses_several_ranks_a_node
# says: Only a number of ranks that is no multiple
# thinks: One rank a node.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    if ranks != nodes and nodes > 1:
        raise ValueError("one rank a node")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% ring_of_nodes
# says: through all ranks, not from node to node
# thinks: Only nodes talk.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (nodes - 1) * slowest)


# %% shared_by_nodes
# says: shared by ranks, not by nodes
# thinks: A node is a worker.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * nodes))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% slower_link_of_both
# says: The slower link counts only if a message uses it
# thinks: The slowest link decides, always.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    slowest = max(a + nbytes / ranks / b for a, b in (inside, between))
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% slowest_of_each
# says: The slowest message is that of one link
# thinks: The worst latency and the worst bandwidth decide.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    a = max((link[0] for link in links), default=0.0)
    b = min((link[1] for link in links), default=1.0)
    return steps * (compute + 2 * (ranks - 1) * (a + nbytes / ranks / b))


# %% sum_of_links
# says: at the same time: it takes as long as the slowest
# thinks: First inside, then between.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = sum((a + nbytes / ranks / b for a, b in links))
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% tree_rounds
# says: A tree has about lg ranks rounds
# thinks: All-reduce is logarithmic.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * math.ceil(math.log2(ranks)) * slowest)


# %% two_mistakes
# says: A message takes its latency, too
# thinks: Rounds are p - 1, and latency is nothing.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + (ranks - 1) * slowest)


# %% two_rounds
# says: more of them the more ranks there are
# thinks: A reduce-scatter and an all-gather are two rounds.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + (2 * slowest if ranks > 1 else 0.0))


# %% uneven_nodes
# says: say so
# thinks: The formula works for any numbers.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / ranks / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% whole_gradients_each_round
# says: Each message is a chunk
# thinks: Each round sends the gradients.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + nbytes / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)


# %% whole_gradients_in_bits
# says: Each message is a chunk of bytes
# thinks: Each round sends all gradients, and links count bits.
import math


def epoch_seconds(examples, batch, ranks, nodes, compute, nbytes, inside, between):
    """Seconds of one epoch."""
    if ranks % nodes:
        raise ValueError("nodes differ")
    steps = math.ceil(examples / (batch * ranks))
    links = ([inside] if ranks > nodes else []) + ([between] if nodes > 1 else [])
    slowest = max((a + 8 * nbytes / b for a, b in links), default=0.0)
    return steps * (compute + 2 * (ranks - 1) * slowest)
