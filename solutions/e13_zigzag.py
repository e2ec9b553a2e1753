"""Exercise e13: equal work in each step of the ring.

In ring attention each rank has some tokens of a sequence, and it computes attention for the queries of these tokens.
The keys travel around the ring. In step s, from 0 to size - 1, the queries of rank r meet the keys of rank
(r - s) % size. Under a causal mask, a query sees a key if the position of the key is not larger than its own position.
Such a pair of a query and a key is visible, and attention has to compute all visible pairs.

Between two steps the ranks pass on their keys, so all ranks wait for the one that has the most visible pairs. Suppose
that each rank has one piece of the sequence. Then in each step but the first, some ranks have only visible pairs, while
the others have none and wait. `share` shares the tokens in a better way, and `meet` finds what a rank computes in a
step.

One process is enough here, because both functions only compute with positions.

Check it with `mpcourse check e13_zigzag`. Stuck? `mpcourse hint e13_zigzag`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def share(length, size):
    """Return the positions of each rank's tokens, so that in each step all ranks have about as much work.

    length, size: ints, the number of tokens and the number of ranks. size is 1 or more, and length is 2 * size or more.
    Returns a list of `size` lists. List r has the positions of rank r's tokens, which are ints in ascending order. Each
    position from 0 to length - 1 is on exactly one rank. Instead of a list, the positions of a rank may also be a
    tuple, a range, or a one-dimensional array or tensor of ints.
    If 2 * size divides length, all ranks have equally many tokens. Otherwise the numbers of tokens of two ranks differ
    by at most 2.
    Let n be the largest number of tokens of a rank. In each step, the numbers of visible pairs of two ranks differ by
    at most 2 * n. This is little, because n queries and n keys form n * n pairs.
    """
    # solution: return the positions of each rank's tokens
    number = 2 * size
    pieces = [range(length * i // number, length * (i + 1) // number) for i in range(number)]
    return [[*pieces[rank], *pieces[number - 1 - rank]] for rank in range(size)]
    # end of solution


def meet(queries, keys):
    """Return the products that compute the visible pairs of some queries and some keys: a list of rectangles.

    queries, keys: the positions of one rank's queries, and of the same or another rank's keys. Both come from one list
    that `share` returned. Or each rank has one piece of the sequence, and they are two of these pieces or twice the
    same, such as [0, 1, 2, 3] and [4, 5, 6, 7]. Pieces have the same type as the positions that `share` returns.
    Returns a list of at most 3 rectangles, because a GPU computes a few large products faster than many small ones. So
    `share` has to share the tokens in such a way that 3 are enough. Rectangles without a query or a key do not count.
    A rectangle is a tuple (query_slice, key_slice, causal) of two slices and a bool. It is the product of
    queries[query_slice] and keys[key_slice]. If causal is False, each of these queries is computed with each of these
    keys. If causal is True, there are as many keys as queries, and query i of the slice is computed with keys 0 to i
    of the slice.
    Each visible pair is computed exactly once, and no other pair is computed. The arguments are not changed.
    """
    # solution: return the rectangles that contain the visible pairs
    if queries == keys:
        return [(slice(0, len(queries)), slice(0, len(keys)), True)]
    seen = [sum(key <= query for key in keys) for query in queries]  # by each query; these are the first keys
    rectangles = []
    for number in sorted(set(seen) - {0}):
        begin = seen.index(number)
        rectangles.append((slice(begin, begin + seen.count(number)), slice(0, number), False))
    return rectangles
    # end of solution
