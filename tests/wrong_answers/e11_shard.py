"""Wrong answers to e11_shard. What a cell holds is told in tests/answers.py."""

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


# %% without_elements
# says: Empty pieces are listed
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
# says: Element 0 of parameter 1 is owned twice.
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
# says: Element 0 of parameter 0 is nobody's.
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


# %% one_to_train_at_least
# says: There may be no element to train
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


# %% index_among_the_trained
# says: i is the number in the list that was given
# thinks: i numbers the trained parameters, since only these are in the buffer.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((len(pieces), total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% frozen_ones_too
# says: Frozen parameters are counted
# thinks: The buffer holds all the parameters; the frozen ones simply never get a gradient.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% tied_twice
# says: A tied parameter is counted twice
# thinks: The list says which parameters there are, so each entry gets its place in the buffer.
def shards(parameters, ranks):
    pieces, total = [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad:
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% tied_if_equal_values
# says: Two parameters with equal shapes and values are two
# thinks: Two parameters are the same one if torch.equal says so.
import torch


def shards(parameters, ranks):
    seen, pieces, total = [], [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and not any(torch.equal(p, q) for q in seen):
            seen.append(p)
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% in_compares_elements
# says: compare tensors element by element
# thinks: `p in seen` asks whether this very tensor is in the list (it compares with == and raises or lies).
def shards(parameters, ranks):
    seen, pieces, total = [], [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and p not in seen:
            seen.append(p)
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% chunk_rounded_down
# says: The chunk's length was rounded down
# thinks: A chunk is total // ranks long.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = total // ranks
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% last_rank_takes_the_rest
# says: here the last rank's is longer
# thinks: All get total // ranks elements, and the last rank takes what is left over.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = total // ranks
    result = []
    for r in range(ranks):
        low, high = r * chunk, (r + 1) * chunk if r < ranks - 1 else total
        mine = []
        for i, start, n in pieces:
            begin, end = max(low - start, 0), min(high - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% as_even_as_possible
# says: as np.array_split cuts
# thinks: The first total % ranks ranks get one element more, as in numpy.array_split, and no padding is needed.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    q, rest = divmod(total, ranks)
    bounds = [r * q + min(r, rest) for r in range(ranks + 1)]
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(bounds[r] - start, 0), min(bounds[r + 1] - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% always_one_more
# says: n // ranks + 1 is one too many
# thinks: total // ranks + 1 rounds up.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = total // ranks + 1
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% rounds_to_nearest
# says: round goes down as often as up
# thinks: round(total / ranks) is near enough, the last rank has what is there.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = round(sum(sizes.values()) / ranks)
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        for r in range(ranks):
            begin = max(r * chunk, start) - start
            end = min((r + 1) * chunk, start + n) - start
            if begin < end:
                result[r].append((i, begin, end))
        start += n
    return result


# %% whole_parameters_in_turn
# says: Whole parameters are dealt out
# thinks: ZeRO deals the parameters out to the ranks, one after the other.
def shards(parameters, ranks):
    result = [[] for _ in range(ranks)]
    seen = set()
    turn = 0
    for i, p in enumerate(parameters):
        if not p.requires_grad or id(p) in seen or p.numel() == 0:
            continue
        seen.add(id(p))
        result[turn % ranks].append((i, 0, p.numel()))
        turn += 1
    return result


# %% whole_parameters_where_they_begin
# says: Whole parameters are dealt out
# thinks: A parameter belongs to the rank in whose chunk it begins; splitting one would be awkward.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        if n > 0:
            result[start // chunk].append((i, 0, n))
        start += n
    return result


# %% each_parameter_cut_alone
# says: Each parameter is cut by itself
# thinks: Every parameter is padded and cut into `ranks` pieces, so every rank has a piece of each.
def shards(parameters, ranks):
    result = [[] for _ in range(ranks)]
    seen = set()
    for i, p in enumerate(parameters):
        if not p.requires_grad or id(p) in seen:
            continue
        seen.add(id(p))
        n = p.numel()
        chunk = -(-n // ranks)
        for r in range(ranks):
            begin, end = r * chunk, min((r + 1) * chunk, n)
            if begin < end:
                result[r].append((i, begin, end))
    return result


# %% end_included
# says: end is the last element of the piece
# thinks: The end is the index of the last element.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end - 1))
        result.append(mine)
    return result


# %% begin_and_length
# says: The third number is the length of the piece
# thinks: The second number is how many elements there are.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end - begin))
        result.append(mine)
    return result


# %% positions_in_the_buffer
# says: begin and end are places in the flat buffer
# thinks: begin and end are positions in the flat buffer.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        for r in range(ranks):
            begin = max(r * chunk, start)
            end = min((r + 1) * chunk, start + n)
            if begin < end:
                result[r].append((i, begin, end))
        start += n
    return result


# %% positions_in_the_chunk
# says: begin and end are places in the rank's chunk
# thinks: begin and end say where in the rank's own chunk the piece lies.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        for r in range(ranks):
            begin = max(r * chunk, start) - start
            end = min((r + 1) * chunk, start + n) - start
            if begin < end:
                result[r].append((i, begin + start - r * chunk, end + start - r * chunk))
        start += n
    return result


# %% empty_pieces_stay
# says: Empty pieces are listed
# thinks: begin <= end is enough, an empty piece does no harm.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin <= end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% every_rank_has_each_parameter
# says: Empty pieces are listed
# thinks: A rank that has nothing of a parameter gets an empty piece of it, so that all lists are equally long.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            mine.append((i, begin, max(begin, end)))
        result.append(mine)
    return result


# %% padding_owned
# says: Padding is given out as elements
# thinks: The last parameter is longer by the padding, so that all chunks are full.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    if pieces:
        i, start, n = pieces.pop()
        pieces.append((i, start, n + chunk * ranks - total))
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% scalars_have_no_elements
# says: A parameter of shape () is left out
# thinks: The number of elements is the product of the sizes, and a tensor without sizes has none.
def count(p):
    if len(p.shape) == 0:
        return 0
    n = 1
    for s in p.shape:
        n *= s
    return n


def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, count(p)))
            total += count(p)
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% len_is_rows
# says: That counts rows
# thinks: len(p) is the number of a tensor's elements.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, len(p)))
            total += len(p)
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% only_as_many_lists_as_chunks
# says: One that owns nothing has an empty one
# thinks: Stepping through the buffer by chunks gives one list a rank (not when a rank has padding alone, nor with step 0).
def shards(parameters, ranks):
    owner = []
    seen = set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            owner += [(i, k) for k in range(p.numel())]
    chunk = (len(owner) + ranks - 1) // ranks
    result = []
    for low in range(0, len(owner), chunk):
        mine = []
        for i, k in owner[low:low + chunk]:
            if mine and mine[-1][0] == i:
                mine[-1] = (i, mine[-1][1], k + 1)
            else:
                mine.append((i, k, k + 1))
        result.append(mine)
    return result


# %% divides_by_an_empty_chunk
# says: There may be no element to train
# thinks: start // chunk is the first owner; a chunk is never empty.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        for r in range(start // chunk, -(-(start + n) // chunk)):
            begin = max(r * chunk, start) - start
            end = min((r + 1) * chunk, start + n) - start
            if begin < end:
                result[r].append((i, begin, end))
        start += n
    return result


# %% one_list_many_times
# says: All ranks have the same list
# thinks: [[]] * ranks makes `ranks` empty lists.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[]] * ranks
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        for r in range(ranks):
            begin = max(r * chunk, start) - start
            end = min((r + 1) * chunk, start + n) - start
            if begin < end:
                result[r].append((i, begin, end))
        start += n
    return result


# %% cut_once_at_most
# says: It is right where a parameter lies in two chunks at most
# thinks: A parameter lies in one chunk or in two, so one cut is enough.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        n = sizes.pop(id(p), 0)
        if n == 0:
            continue
        first, last = start // chunk, (start + n - 1) // chunk
        if first == last:
            result[first].append((i, 0, n))
        else:
            cut = last * chunk - start
            result[first].append((i, 0, cut))
            result[last].append((i, cut, n))
        start += n
    return result


# %% begins_again_in_each_chunk
# says: Each piece begins at 0
# thinks: The offset within a parameter begins at 0 in every chunk.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(sizes.values()) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    r, room = 0, chunk
    for i, p in enumerate(parameters):
        n = sizes.pop(id(p), 0)
        while n > 0:
            if room == 0:
                r, room = r + 1, chunk
            take = min(n, room)
            result[r].append((i, 0, take))
            n -= take
            room -= take
    return result


# %% floats
# says: A piece is a tuple of three ints
# thinks: numpy.ceil gives an int.
import numpy as np


def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = np.ceil(total / ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% tensors
# says: A piece is a tuple of three ints
# thinks: A tensor with one number is an int.
import torch


def shards(parameters, ranks):
    seen, pieces, total = set(), [], torch.tensor(0)
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total = total + p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% lists_not_tuples
# says: A piece is a tuple of three ints
# thinks: A list [i, begin, end] is as good as a tuple.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append([i, begin, end])
        result.append(mine)
    return result


# %% a_dict_by_rank
# says: Return a list of lists
# thinks: A dict from rank to pieces can be used like the list.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = {}
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result[r] = mine
    return result


# %% only_one_ranks_list
# says: Return a list of lists
# thinks: Returns what this rank owns (and there is no rank here).
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result[0]


# %% seen_is_kept
# says: keeps what earlier calls left
# thinks: The default value seen=set() is made anew in every call.
def shards(parameters, ranks, seen=set()):
    pieces, total = [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% tied_at_its_last_place
# says: first place in the list, not of its last one
# thinks: A dict from tensor to index knows each once (its index is that of the last place).
def shards(parameters, ranks):
    index = {id(p): (i, p.numel()) for i, p in enumerate(parameters) if p.requires_grad}
    chunk = -(-sum(n for _, n in index.values()) // ranks)
    result = [[] for _ in range(ranks)]
    start = 0
    for i, n in index.values():
        for r in range(ranks):
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                result[r].append((i, begin, end))
        start += n
    return result


# %% total_counts_the_tied_twice
# says: It is right where no parameter is in the list twice
# thinks: The total is the sum over all trained entries, and the second place is skipped in the loop only.
def shards(parameters, ranks):
    sizes = {id(p): p.numel() for p in parameters if p.requires_grad}
    chunk = (sum(p.numel() for p in parameters if p.requires_grad) + ranks - 1) // ranks
    result = [[] for _ in range(ranks)]
    start = 0
    for i, p in enumerate(parameters):
        if id(p) not in sizes:
            continue
        n = sizes.pop(id(p))
        for r in range(ranks):
            begin = max(r * chunk, start) - start
            end = min((r + 1) * chunk, start + n) - start
            if begin < end:
                result[r].append((i, begin, end))
        start += n
    return result


# %% tied_leaves_a_gap
# says: It is right where no parameter is in the list twice
# thinks: The second place is not given out, but the buffer goes on behind it.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.requires_grad:
            if id(p) not in seen:
                pieces.append((i, total, p.numel()))
            seen.add(id(p))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% adjacent_ties_only
# says: It is right where no parameter is in the list twice
# thinks: A tied parameter stands right behind its twin.
def shards(parameters, ranks):
    pieces, total, last = [], 0, None
    for i, p in enumerate(parameters):
        if p.requires_grad and p is not last:
            last = p
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% a_set_loses_the_order
# says: the parameters stand in another order
# thinks: set(parameters) takes out the doubles (and the order with them).
def shards(parameters, ranks):
    where = {}
    for i, p in enumerate(parameters):
        where.setdefault(id(p), i)
    trained = {p for p in parameters if p.requires_grad}
    chunk = -(-sum(p.numel() for p in trained) // ranks)
    result = [[] for _ in range(ranks)]
    start = 0
    for p in trained:
        for r in range(ranks):
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, p.numel())
            if begin < end:
                result[r].append((where[id(p)], begin, end))
        start += p.numel()
    return result


# %% biggest_first
# says: the parameters stand in another order
# thinks: The biggest parameters go first, that balances best.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in sorted(enumerate(parameters), key=lambda t: -t[1].numel()):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% from_the_back
# says: the parameters stand in another order
# thinks: Backward comes to the last parameters first, so the buffer begins with them.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in reversed(list(enumerate(parameters))):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% stops_at_the_first_frozen
# says: It is right where none is frozen
# thinks: break leaves the frozen one out.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if not p.requires_grad:
            break
        if id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% frozen_if_no_grad_yet
# says: whatever .grad is
# thinks: A parameter is trained if it has a gradient, that is if p.grad is not None.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        if p.grad is not None and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% flattens_them_in_place
# says: to leave its arguments as they are
# thinks: The parameters have to be made flat first.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    for i, p in enumerate(parameters):
        p.data = p.data.flatten()
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, len(p)))
            total += len(p)
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% pops_the_list
# says: to leave its arguments as they are
# thinks: The list is mine to use up.
def shards(parameters, ranks):
    seen, pieces, total = set(), [], 0
    i = -1
    while parameters:
        i, p = i + 1, parameters.pop(0)
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            pieces.append((i, total, p.numel()))
            total += p.numel()
    chunk = -(-total // ranks)
    result = []
    for r in range(ranks):
        mine = []
        for i, start, n in pieces:
            begin, end = max(r * chunk - start, 0), min((r + 1) * chunk - start, n)
            if begin < end:
                mine.append((i, begin, end))
        result.append(mine)
    return result


# %% every_ranks_th_element
# says: Elements are dealt out in turn
# thinks: Rank r owns the elements r, r + ranks, r + 2 ranks ..., like a distributed sampler.
def shards(parameters, ranks):
    result = [[] for _ in range(ranks)]
    seen, position = set(), 0
    for i, p in enumerate(parameters):
        if not p.requires_grad or id(p) in seen:
            continue
        seen.add(id(p))
        for k in range(p.numel()):
            result[position % ranks].append((i, k, k + 1))
            position += 1
    return result


# %% pieces_of_one_element
# says: The right elements, in other pieces
# thinks: Pieces of one element each say the same.
def shards(parameters, ranks):
    flat, seen = [], set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            flat += [(i, k, k + 1) for k in range(p.numel())]
    chunk = -(-len(flat) // ranks)
    return [flat[r * chunk:(r + 1) * chunk] for r in range(ranks)]


# %% half_finished
# says: Rank 0 owns everything
# thinks: First the case of one rank.
def shards(parameters, ranks):
    result = [[] for _ in range(ranks)]
    seen = set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen and p.numel() > 0:
            seen.add(id(p))
            result[0].append((i, 0, p.numel()))
    # TODO: more than one rank
    return result


# %% aligned
# says: Rank 0 owns 4 elements, not 3. All chunks are as long as 10 over 4 rounded up, 3, and the last ones have
# thinks: Chunks are aligned to four elements, which is faster.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = 4 * -(-length // (4 * ranks))
    found = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        found.append(own)
    return found


# %% step_of_zero
# says: There may be no element to train. Then every rank owns nothing: an empty list for each of them.
# thinks: There is always something to train, so a chunk has one element at least and may be a step of range.
def shards(parameters, ranks):
    owner = []
    for i, p in enumerate(parameters):
        if p.requires_grad and not any(p is q for q in parameters[:i]):
            owner += [(i, k) for k in range(p.numel())]
    chunk = -(-len(owner) // ranks)
    pieces = [owner[k : k + chunk] for k in range(0, len(owner), chunk)]
    pieces += [[]] * (ranks - len(pieces))
    found = []
    for piece in pieces:
        own = {}
        for i, k in piece:
            begin, _ = own.get(i, (k, k))
            own[i] = (begin, k + 1)
        found.append([(i, begin, end) for i, (begin, end) in own.items()])
    return found


# %% empty_ones_are_not_numbered
# says: i is the number in the list that was given, in which frozen, tied and empty parameters count, too.
# thinks: A parameter without elements owns nothing, so I take it off the list first.
def shards(parameters, ranks):
    parameters = [p for p in parameters if p.numel() > 0]
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% bytes_not_elements
# says: That counts bytes. Places are counted in elements, whatever their dtype.
# thinks: The buffer is cut into equally many bytes, so that parameters of float64 count twice.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            size = p.numel() * p.element_size()
            places.append((i, length, length + size))
            length += size
    chunk = -(-length // ranks)
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% the_last_ones_take_one_more
# says: Rank 0 owns 2 elements, not 3. All chunks are as long as 10 over 4 rounded up, 3, and the last ones have
# thinks: n % ranks elements are left over, and the last ranks take one of them each: no padding is needed.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    sizes = [length // ranks + (r >= ranks - length % ranks) for r in range(ranks)]
    found, start = [], 0
    for size in sizes:
        stop = start + size
        meets = [(i, max(first, start) - first, min(last, stop) - first) for i, first, last in places]
        found.append([(i, begin, end) for i, begin, end in meets if begin < end])
        start = stop
    return found


# %% padding_in_front
# says: The padding is in front. It is at the end of the buffer: the last ranks own less, not the first.
# thinks: The buffer begins with its padding, so that it ends where the last parameter does.
def shards(parameters, ranks):
    places, seen = [], set()
    trained = []
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            trained.append((i, p.numel()))
    total = sum(n for _, n in trained)
    length = -total % ranks
    for i, n in trained:
        places.append((i, length, length + n))
        length += n
    chunk = length // ranks
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% first_element_is_left_out
# says: Element 0 of parameter 1 is nobody's.
# thinks: A chunk begins behind the place where the one before it ends.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    found = []
    for r in range(ranks):
        start, stop = r * chunk + (r > 0), (r + 1) * chunk
        meets = [(i, max(first, start) - first, min(last, stop) - first) for i, first, last in places]
        found.append([(i, begin, end) for i, begin, end in meets if begin < end])
    return found


# %% blocks_in_turn
# says: Rank 0 owns 4 elements, not 3. All chunks are as long as 10 over 4 rounded up, 3, and the last ones have
# thinks: Blocks of four elements go round the ranks, as a block-cyclic distribution deals them.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    found = [[] for _ in range(ranks)]
    for block in range(0, length, 4):
        for i, first, last in places:
            begin, end = max(first, block), min(last, block + 4)
            if begin < end:
                found[block // 4 % ranks].append((i, begin - first, end - first))
    return found


# %% numbers_of_the_unique
# says: i is the number in the list that was given, in which frozen, tied and empty parameters count, too.
# thinks: A list without the doubles is made first, and i counts in that.
def shards(parameters, ranks):
    unique = []
    for p in parameters:
        if not any(p is q for q in unique):
            unique.append(p)
    places, length = [], 0
    for i, p in enumerate(unique):
        if p.requires_grad:
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% all_trained_if_one_is
# says: It is right where none is frozen. Which ones are is told by each parameter's own requires_grad.
# thinks: A model is frozen or it is not: the first parameter tells.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if parameters[0].requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% sharers_by_memory
# says: A tied parameter is the same object, which `is` and id(p) tell. Where its memory begins does not
# thinks: Tensors that are in use begin at addresses of their own. Those without elements share one, and own nothing.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if not p.requires_grad:
            continue
        if p.data_ptr() in seen:
            continue
        seen.add(p.data_ptr())
        places.append((i, length, length + p.numel()))
        length += p.numel()
    chunk = -(-length // ranks)
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% owner_by_division_rounded_down
# says: The number of ranks need not divide the number of elements, 10 here: the chunk's length is rounded up
# thinks: Element e belongs to rank e // (elements // ranks).
def shards(parameters, ranks):
    owned, place, seen = [[] for _ in range(ranks)], 0, set()
    trained = [p for p in {id(p): p for p in parameters if p.requires_grad}.values()]
    chunk = max(1, sum(p.numel() for p in trained) // ranks)
    for i, p in enumerate(parameters):
        if not p.requires_grad or id(p) in seen:
            continue
        seen.add(id(p))
        for element in range(p.numel()):
            mine = owned[place // chunk]
            if mine and mine[-1][0] == i:
                mine[-1] = (i, mine[-1][1], element + 1)
            else:
                mine.append((i, element, element + 1))
            place += 1
    return owned


# %% rows_times_columns
# says: A parameter may have any number of dimensions, also none: p.numel() is the product of its shape.
# thinks: A weight has rows and columns.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            n = p.shape[0] * p.shape[1]
            places.append((i, length, length + n))
            length += n
    chunk = -(-length // ranks)
    return [
        [
            (i, max(first, r * chunk) - first, min(last, (r + 1) * chunk) - first)
            for i, first, last in places
            if max(first, r * chunk) < min(last, (r + 1) * chunk)
        ]
        for r in range(ranks)
    ]


# %% blocks_of_no_length
# says: With more ranks than elements, elements // ranks is 0. The chunk's length is rounded up, so it is 1 at least.
# thinks: The chunk's length is rounded up only where ranks are fewer than elements.
def shards(parameters, ranks):
    places, length, seen = [], 0, set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks) if length >= ranks else length // ranks
    begins = [*range(0, length, chunk)] if length else []
    begins += [length] * (ranks - len(begins))
    return [
        [
            (i, max(first, at) - first, min(last, at + chunk) - first)
            for i, first, last in places
            if max(first, at) < min(last, at + chunk)
        ]
        for at in begins
    ]
