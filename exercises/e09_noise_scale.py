"""Exercise e09: the gradient noise scale. How large must a batch be?

A batch's gradient g is the true gradient G plus noise. If g is the mean over B examples, its square |g|^2 (the sum of
the squares of all its numbers) is on average

    |G|^2 + S / B

where S is the trace of the covariance matrix of single examples' gradients. As long as S / B is larger than |G|^2, a
larger batch makes a better step. Beyond B = S / |G|^2, the noise scale, a larger batch hardly helps (McCandlish et al.
2018).

Ranks that train together have gradients of two batch sizes anyway. Before they average, each rank has a gradient of its
own `examples` examples. Afterwards all have the gradient of examples * ranks. Two sizes give two equations, which
determine both unknowns:

    |G|^2 = (big * big_square - small * small_square) / (big - small)
    S     = (small_square - big_square) / (1 / small - 1 / big)

The result of one step is itself mostly noise. So take the mean of |G|^2 over all steps, and the mean of S, and only
then divide S by |G|^2.

Check it with `mpcourse check e09_noise_scale`. Stuck? `mpcourse hint e09_noise_scale`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def noise_scale(gradients, examples):
    """Return the noise scale S / |G|^2 from the gradients of some steps: a float, in examples.

    gradients: a list with a float64 tensor of shape (ranks, parameters) for each step. Each row is the gradient of one
    rank's own batch, a mean over its examples. There are two ranks or more, the same number in every step.
    examples: the number of examples in each rank's batch, an int.
    small_square is the mean of |g|^2 over the ranks, and big_square is |g|^2 of the mean of all ranks' gradients.
    Returns math.inf if the mean of |G|^2 is not above 0, because the gradient is then lost in the noise.
    """
    raise NotImplementedError("e09_noise_scale: compute |G|^2 and S of each step, average each over the steps, then divide")
