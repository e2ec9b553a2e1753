"""Right answers to e11_shard. What a cell holds is told in tests/answers.py."""

# %% element_by_element
# thinks: Slow and plain: each element's owner, and then runs of elements.
def shards(parameters, ranks):
    elements = []
    had = []
    for i, p in enumerate(parameters):
        if p.requires_grad and all(p is not q for q in had):
            had.append(p)
            elements += [(i, k) for k in range(p.numel())]
    while len(elements) % ranks:
        elements.append(None)
    chunk = len(elements) // ranks
    found = []
    for rank in range(ranks):
        own = []
        for each in elements[rank * chunk : (rank + 1) * chunk]:
            if each is None:
                continue
            if own and own[-1][0] == each[0]:
                own[-1] = (each[0], own[-1][1], each[1] + 1)
            else:
                own.append((each[0], each[1], each[1] + 1))
        found.append(own)
    return found


# %% walking
# thinks: Walks along the buffer, from one border to the next.
import math


def shards(parameters, ranks):
    number = {}
    for i, p in enumerate(parameters):
        number.setdefault(p, i)
    trained = [(i, p.numel()) for p, i in number.items() if p.requires_grad]
    chunk = math.ceil(sum(n for _, n in trained) / ranks)
    found = [[]]
    room = chunk
    for i, n in trained:
        begin = 0
        while begin < n:
            if not room:
                found.append([])
                room = chunk
            taken = min(room, n - begin)
            found[-1].append((i, begin, begin + taken))
            begin += taken
            room -= taken
    return found + [[] for _ in range(ranks - len(found))]


# %% by_arrays
# thinks: The owners of a whole flat buffer, as torch's arrays; pieces are named tuples of numpy's ints.
from typing import NamedTuple

import numpy as np


class Piece(NamedTuple):
    parameter: int
    begin: int
    end: int


def shards(parameters, ranks):
    first = {id(p): i for i, p in reversed(list(enumerate(parameters))) if p.requires_grad}
    kept = sorted(first.values())
    ends = np.cumsum([parameters[i].numel() for i in kept], dtype=np.int64)
    length = int(ends[-1]) if kept else 0
    chunk = (length + ranks - 1) // ranks
    found = []
    for rank in range(ranks):
        low, high = rank * chunk, min((rank + 1) * chunk, length)
        found.append([])
        for i, end in zip(kept, ends):
            begin = end - parameters[i].numel()
            piece = Piece(i, np.maximum(begin, low) - begin, np.minimum(end, high) - begin)
            if piece.begin < piece.end:
                found[-1].append(piece)
    return found


# %% one_generator
# thinks: A helper for one rank.
def shards(parameters, ranks):
    unique = list({id(p): (i, p) for i, p in reversed(list(enumerate(parameters)))}.values())[::-1]
    unique = [(i, p) for i, p in sorted(unique, key=lambda each: each[0]) if p.requires_grad]
    chunk = (sum(p.numel() for _, p in unique) - 1) // ranks + 1
    return [list(_of(unique, rank * chunk, rank * chunk + chunk)) for rank in range(ranks)]


def _of(unique, low, high):
    for i, p in unique:
        low, high = max(low, 0), max(high, 0)
        if low < min(high, p.numel()):
            yield i, low, min(high, p.numel())
        low, high = low - p.numel(), high - p.numel()
