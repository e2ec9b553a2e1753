"""Exercise e03: where to cut.

A network of n layers is cut into stages of consecutive layers, one stage for each GPU. The slowest stage sets the
pace, and the largest stage decides whether the network fits. So the best cut makes the largest stage as small as
possible.

`balance([1, 1, 1, 5, 1], 2)` -> [3, 2]: the stages cost 1+1+1 = 3 and 5+1 = 6. In every cut one stage costs 6 or more.

Check it with `mpcourse check e03_balance`. Stuck? `mpcourse hint e03_balance`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def balance(costs, stages):
    """Return the number of layers in each stage, so that the most expensive stage costs as little as possible.

    costs: a list of up to 40 ints or floats, each 0 or more: the seconds or bytes of each layer, in order. The cost of
    a stage is the sum of its layers' costs.
    stages: an int, from 1 to len(costs).
    Returns a list or tuple of `stages` ints, Python's or numpy's, each 1 or more. Their sum is len(costs). If several
    answers are best, return any of them. For 40 layers and 8 stages the function may compute for 3 seconds.
    """
    # solution: return the number of layers in each stage, so that the most expensive stage costs as little as possible
    n = len(costs)
    # best[i]: (cost of the most expensive stage, sizes) for layers i, i+1, ... cut into as many stages as so far
    best = [(sum(costs[i:]), [n - i]) for i in range(n)]
    for _ in range(stages - 1):
        best = [
            min(
                ((max(sum(costs[i:j]), best[j][0]), [j - i, *best[j][1]]) for j in range(i + 1, len(best))),
                default=None,
            )
            for i in range(len(best) - 1)
        ]
    return best[0][1]
    # end of solution
