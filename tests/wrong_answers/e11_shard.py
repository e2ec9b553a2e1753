"""Wrong answers to e11_shard. What a cell holds is told in tests/answers.py."""

# %% tied_twice
# says: A tied parameter is counted twice
# thinks: Each entry of the list is a parameter.
def shards(parameters, ranks):
    places, length = [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad:
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% frozen_too
# says: Frozen parameters are counted
# thinks: All parameters are sharded.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% everything
# says: frozen and tied ones are counted here
# thinks: The list is the buffer.
def shards(parameters, ranks):
    places, length = [], 0
    for i, p in enumerate(parameters):
        if True:
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% equal_values
# says: Two parameters with equal shapes and values are two
# thinks: Tied parameters have equal values.
import torch


def shards(parameters, ranks):
    unique = []
    for i, p in enumerate(parameters):
        if p.requires_grad and not any(torch.equal(p, q) for _, q in unique):
            unique.append((i, p))
    length = sum(p.numel() for _, p in unique)
    chunk = (length + ranks - 1) // ranks
    found = [[] for _ in range(ranks)]
    first = 0
    for i, p in unique:
        for rank in range(ranks):
            begin, end = max(first, rank * chunk), min(first + p.numel(), (rank + 1) * chunk)
            if begin < end:
                found[rank].append((i, begin - first, end - first))
        first += p.numel()
    return found


# %% in_a_list
# says: compare tensors element by element
# thinks: `in` tells whether I have had a parameter.
def shards(parameters, ranks):
    places, length, seen = [], 0, []
    for i, p in enumerate(parameters):
        if p.requires_grad and p not in seen:
            seen.append(p)
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% last_place
# says: stands at its first place in the list, not at its last
# thinks: A dict keeps each parameter once.
def shards(parameters, ranks):
    places, length = [], 0
    number = {p: i for i, p in enumerate(parameters) if p.requires_grad}
    for i, p in sorted((i, p) for p, i in number.items()):
        if True:
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% numbered_anew
# says: i is the number in the list that was given
# thinks: I number what I shard.
def shards(parameters, ranks):
    places, length = [], 0
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]
    for i, p in enumerate(trained):
        places.append((i, length, length + p.numel()))
        length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% rows
# says: That counts rows
# thinks: len(p) is how long a parameter is.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            size = len(p) if p.dim() else 1
            places.append((i, length, length + size))
            length += size
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% no_scalars
# says: A parameter of shape () is left out
# thinks: A number is no tensor to be cut.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen and p.shape:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% those_with_gradients
# says: whatever .grad is
# thinks: What has no gradient is not trained.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.grad is not None and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% rounded_down
# says: The chunk's length was rounded down
# thinks: Each rank gets length // ranks elements.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = length // ranks
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% rest_to_last
# says: here the last rank's is longer
# thinks: The last rank takes what is left.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = length // ranks
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk if rank < ranks - 1 else length)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% as_array_split
# says: as np.array_split cuts
# thinks: The rest is shared among the first ranks, so that nothing has to be padded.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk, rest = divmod(length, ranks)
    ends = [r * chunk + min(r, rest) for r in range(ranks + 1)]
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, ends[rank]), min(last, ends[rank + 1])
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% rounded
# says: round goes down as often as up
# thinks: round() makes an int of length / ranks.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = round(length / ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% one_more
# says: n // ranks + 1 is one too many
# thinks: One more than length // ranks is enough for all.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = length // ranks + 1
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% borders
# says: borders at r n / p
# thinks: Rank r's chunk begins at r / ranks of the buffer.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * length // ranks), min(last, (rank + 1) * length // ranks)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% last_first
# says: The chunks are right, and go to the wrong ranks
# thinks: Backward reaches the last parameters first, so rank 0 has them.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found[::-1]


# %% flat_places
# says: begin and end are places in the flat buffer
# thinks: begin and end say where the piece lies in the buffer.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin, end))
        found.append(own)
    return found


# %% chunk_places
# says: begin and end are places in the rank's chunk
# thinks: begin and end say where the piece lies in the chunk.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - rank * chunk, end - rank * chunk))
        found.append(own)
    return found


# %% end_included
# says: end is the last element of the piece
# thinks: The piece goes from begin to end.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first - 1))
        found.append(own)
    return found


# %% with_length
# says: The third number is the length of the piece
# thinks: A piece is where it begins and how long it is.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - begin))
        found.append(own)
    return found


# %% padding_is_the_last_ones
# says: Padding is given out as elements of the last parameter
# thinks: The last parameter is padded.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    i, first, _ = places.pop() if places else (0, 0, 0)
    if length:
        places.append((i, first, chunk * ranks))
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% empty_pieces
# says: Empty pieces are listed
# thinks: What begins where a chunk ends belongs to it, with no element.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin <= end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% without_elements
# says: Parameters without elements are listed
# thinks: Each parameter is somebody's.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end or first == last == begin == end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% whole_parameters
# says: A parameter is given whole to each rank
# thinks: Whoever owns a part needs the parameter.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, 0, last - first))
        found.append(own)
    return found


# %% each_at_0
# says: Each piece begins at 0
# thinks: A piece is as long as what the rank owns of it.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, 0, end - begin))
        found.append(own)
    return found


# %% each_cut_alone
# says: Each parameter is cut by itself
# thinks: Every rank owns its part of every parameter.
def shards(parameters, ranks):
    found = [[] for _ in range(ranks)]
    for p in dict.fromkeys(parameters):
        if p.requires_grad:
            i = next(i for i, q in enumerate(parameters) if q is p)
            chunk = -(-p.numel() // ranks)
            for r in range(ranks):
                begin, end = r * chunk, min((r + 1) * chunk, p.numel())
                if begin < end:
                    found[r].append((i, begin, end))
    return found


# %% dealt_out
# says: Whole parameters are dealt out
# thinks: Each parameter goes to the rank that has least so far.
def shards(parameters, ranks):
    found, held, seen = [[] for _ in range(ranks)], [0] * ranks, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen and p.numel():
            seen.add(id(p))
            rank = held.index(min(held))
            held[rank] += p.numel()
            found[rank].append((i, 0, p.numel()))
    return found


# %% backwards
# says: The right pieces, in another order
# thinks: Walks from the last parameter to the first.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in reversed(places):
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% element_by_element
# says: Some element is owned twice
# thinks: A chunk ends where the next begins, so both have that element.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk + 1)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% a_hole
# says: Some element of a trained parameter is nobody's
# thinks: The first element of a chunk is its number 1.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk + 1), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% swapped
# says: 0 <= begin < end <= p.numel()
# thinks: The end comes first.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, end - first, begin - first))
        found.append(own)
    return found


# %% largest_first
# says: The buffer holds trained parameters, each once, in the order of the list
# thinks: Large parameters are cut first.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    order = sorted(places, key=lambda at: at[1] - at[2])
    places, length = [], 0
    for i, first, last in order:
        places.append((i, length, length + last - first))
        length += last - first
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% forgot_to_return
# says: Nothing came back
# thinks: Fills a list.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)


# %% a_dict
# says: Return a list of lists
# thinks: A dict by rank tells whose a list is.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return dict(enumerate(found))


# %% nothing_left_out
# says: One that owns nothing has an empty one
# thinks: Ranks without elements need no list.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        if own:
            found.append(own)
    return found


# %% only_numbers
# says: A piece is a tuple of three ints
# thinks: A slice tells both ends.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, slice(begin - first, end - first)))
        found.append(own)
    return found


# %% one_to_train_at_least
# says: There may be nothing to train
# thinks: The length is where the last parameter ends.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    length = places[-1][2]
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% kept_numbers
# says: keeps what earlier calls left
# thinks: One set of what was seen is enough.
seen = set()


def shards(parameters, ranks):
    places, length = [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and (i, p.shape) not in seen:
            seen.add((i, p.shape))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found
