"""Exercise e03: where to cut.

A network of n layers is cut into stages of consecutive layers, one stage a GPU. The slowest stage sets the pace, and
the largest one decides whether it fits. So the cut to look for makes the largest stage as small as it can be.

`balance([1, 1, 1, 5, 1], 2)` -> [3, 2]: stages 1+1+1 = 3 and 5+1 = 6. No cut has a largest stage below 6.

Check it with `mpcourse check e03_balance`. Stuck? `mpcourse hint e03_balance`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def balance(costs, stages):
    """How many consecutive layers each stage gets, so that the largest sum of a stage's costs is as small as possible.

    costs: list of numbers, 0 or more, ints or floats: seconds or bytes of each layer, in order. Up to 40 of them.
    stages: int, from 1 to len(costs).
    Returns a list or tuple of `stages` ints, Python's or numpy's, each 1 or more, that sum to len(costs). Of several
    best answers any will do. 40 layers and 8 stages may take 3 seconds of computing.
    """
    raise NotImplementedError("e03_balance: return the numbers of layers of each stage, such that the dearest stage is as cheap as possible")
