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


# %% element_by_element_grouped
# thinks: Writes down the owner of each element, slices, and joins neighbours with groupby.
from itertools import groupby


def shards(parameters, ranks):
    first = {}
    for i, p in enumerate(parameters):
        if p.requires_grad:
            first.setdefault(id(p), (i, p.numel()))
    flat = [(i, k) for i, n in first.values() for k in range(n)]
    chunk = (len(flat) + ranks - 1) // ranks
    result = []
    for r in range(ranks):
        mine = []
        for i, group in groupby(flat[r * chunk:(r + 1) * chunk], key=lambda t: t[0]):
            ks = [k for _, k in group]
            mine.append((i, ks[0], ks[-1] + 1))
        result.append(mine)
    return result


# %% numpy_cuts
# thinks: All cuts, of parameters and chunks, are sorted together; between two neighbouring cuts lies one piece.
import numpy as np


def shards(parameters, ranks):
    index, seen = [], set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            index.append(i)
    starts = np.array([0] + [parameters[i].numel() for i in index], dtype=np.int64).cumsum()
    total = int(starts[-1])
    chunk = -(-total // ranks)
    result = [[] for _ in range(ranks)]
    cuts = np.unique(np.concatenate([starts, np.minimum(np.arange(ranks + 1) * chunk, total)]))
    for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        j = int(np.searchsorted(starts, a, side="right")) - 1
        result[a // chunk].append((index[j], a - int(starts[j]), b - int(starts[j])))
    return result


# %% one_expression
# thinks: Each piece is the intersection of a chunk with a parameter.
from itertools import accumulate


def shards(parameters, ranks):
    own = [i for i, p in enumerate(parameters) if p.requires_grad and all(p is not q for q in parameters[:i])]
    starts = list(accumulate((parameters[i].numel() for i in own), initial=0))
    c = -(-starts[-1] // ranks)
    return [[(i, max(r * c, s) - s, min(r * c + c, e) - s) for i, s, e in zip(own, starts, starts[1:])
             if max(r * c, s) < min(r * c + c, e)] for r in range(ranks)]


# %% recursion
# thinks: Cut off the first chunk, then do the same with what is left and one rank fewer.
def shards(parameters, ranks):
    todo, seen = [], []
    for i, p in enumerate(parameters):
        if p.requires_grad and not any(p is q for q in seen):
            seen.append(p)
            todo.append((i, 0, p.numel()))
    chunk = -(-sum(e for _, _, e in todo) // ranks)

    def take(todo, room):
        if not todo or room == 0:
            return [], todo
        (i, b, e), *rest = todo
        if b == e:
            return take(rest, room)
        m = min(e, b + room)
        mine, left = take(([(i, m, e)] if m < e else []) + rest, room - (m - b))
        return [(i, b, m)] + mine, left

    def cut(todo, ranks):
        if ranks == 0:
            return []
        mine, left = take(todo, chunk)
        return [mine] + cut(left, ranks - 1)

    return cut(todo, ranks)


# %% torch_views
# thinks: A padded buffer of owner numbers, viewed as (ranks, chunk), says it all; runs of one number are the pieces.
import torch
import torch.nn.functional as F


def shards(parameters, ranks):
    numbers, places, seen = [], [], set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            numbers.append(torch.full((p.numel(),), i))
            places.append(torch.arange(p.numel()))
    if not seen:
        return [[] for _ in range(ranks)]
    number, place = torch.cat(numbers), torch.cat(places)
    pad = -len(number) % ranks
    chunk = (len(number) + pad) // ranks
    number = F.pad(number, (0, pad), value=-1).view(ranks, chunk)
    place = F.pad(place, (0, pad), value=-1).view(ranks, chunk)
    result = []
    for num, pl in zip(number, place):
        mine = []
        for i in torch.unique_consecutive(num).tolist():
            if i >= 0:
                where = pl[num == i]
                mine.append((i, int(where.min()), int(where.max()) + 1))
        result.append(mine)
    return result


# %% two_pointers
# thinks: Fill one chunk after the other, in a while loop that goes on to the next rank when the room is used up.
def shards(parameters, ranks):
    unique = dict.fromkeys(p for p in parameters if p.requires_grad)
    total = sum(p.numel() for p in unique)
    chunk = (total + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    r, room = 0, chunk
    for i, p in enumerate(parameters):
        if p not in unique:
            continue
        del unique[p]
        begin = 0
        while begin < p.numel():
            if room == 0:
                r += 1
                room = chunk
            end = min(p.numel(), begin + room)
            result[r].append((i, begin, end))
            room -= end - begin
            begin = end
    return result


# %% owner_range_by_division
# thinks: From the first and the last position of a parameter, divided by the chunk's length, follow the ranks it is on.
import math


def shards(parameters, ranks):
    sizes = {}
    for i in reversed(range(len(parameters))):
        if parameters[i].requires_grad:
            sizes[id(parameters[i])] = (i, math.prod(parameters[i].shape))
    trained = sorted(s for s in sizes.values() if s[1] > 0)
    chunk = max(1, math.ceil(sum(n for _, n in trained) / ranks))
    result = [[] for _ in range(ranks)]
    start = 0
    for i, n in trained:
        for r in range(start // chunk, (start + n - 1) // chunk + 1):
            result[r] += [(i, max(0, r * chunk - start), min(n, (r + 1) * chunk - start))]
        start += n
    return result


# %% dict_of_parameters
# thinks: A dict's keys are compared by their hash, a tensor's is its identity, and setdefault keeps the first place.
def shards(parameters, ranks):
    first = {}
    for i, p in enumerate(parameters):
        first.setdefault(p, i)
    trained = [(i, p.numel()) for p, i in first.items() if p.requires_grad]
    chunk = (sum(n for _, n in trained) + ranks - 1) // ranks
    found = [[] for _ in range(ranks)]
    place = 0
    for i, n in trained:
        done = 0
        while done < n:
            rank, within = divmod(place, chunk)
            take = min(n - done, chunk - within)
            found[rank].append((i, done, done + take))
            done += take
            place += take
    return found


# %% labels_in_a_tensor
# thinks: Whose each element is stands in tensors of its shape, filled from one arange; runs are read off from them.
import torch


def shards(parameters, ranks):
    unique = [i for i, p in enumerate(parameters) if p.requires_grad and all(p is not q for q in parameters[:i])]
    sizes = [parameters[i].numel() for i in unique]
    chunk = -(-sum(sizes) // ranks)
    owners = (torch.arange(sum(sizes)) // max(chunk, 1)).split(sizes) if sizes else ()
    return [
        [
            (i, int(mine[0]), int(mine[-1]) + 1)
            for i, owner in zip(unique, owners)
            if len(mine := (owner == rank).nonzero().flatten())
        ]
        for rank in range(ranks)
    ]


# %% cuts_sorted
# thinks: The ends of parameters and of chunks, sorted together, are all places where a piece begins or ends.
from bisect import bisect_right
from itertools import pairwise


def shards(parameters, ranks):
    begins, which, length = [], [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and p.numel() and not any(p is q for q in parameters[:i]):
            begins.append(length)
            which.append(i)
            length += p.numel()
    found = [[] for _ in range(ranks)]
    if length:
        chunk = -(-length // ranks)
        cuts = sorted({*begins, *range(0, length, chunk), length})
        for a, b in pairwise(cuts):
            k = bisect_right(begins, a) - 1
            found[a // chunk].append((which[k], a - begins[k], b - begins[k]))
    return found


# %% numpy_numbers
# thinks: numpy's integers count, compare and index as ints do, so a caller may use them as they are.
import numpy as np


def shards(parameters, ranks):
    which = [
        i for i, p in enumerate(parameters) if p.requires_grad and not any(p is q for q in parameters[:i])
    ]
    ends = np.cumsum([parameters[i].numel() for i in which])
    begins = np.concatenate([[0], ends[:-1]]).astype(int) if len(ends) else ends
    chunk = -(-int(ends[-1]) // ranks) if len(ends) else 0
    found = []
    for r in range(ranks):
        low = np.clip(r * chunk, begins, ends) - begins if len(ends) else []
        high = np.clip((r + 1) * chunk, begins, ends) - begins if len(ends) else []
        found.append([(i, b, e) for i, b, e in zip(which, low, high) if b < e])
    return found
