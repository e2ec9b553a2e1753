"""Exercise e09: the gradient noise scale. How large is a batch that is large enough?

A batch's gradient is the true one, G, plus noise. Of the mean over B examples, the square |g|^2 (the sum of the squares
of all its numbers) is on average

    |G|^2 + S / B

where S, the trace of the covariance, is how much single examples scatter. While S / B is larger than |G|^2, a larger
batch makes a better step; beyond B = S / |G|^2, the noise scale, it hardly does (McCandlish et al. 2018).

Ranks that train together know two batch sizes anyway: before gradients are averaged each rank has one of its own
`examples`, after that all have one of examples * ranks. Two sizes are two equations, which give both unknowns:

    |G|^2 = (big * big_square - small * small_square) / (big - small)
    S     = (small_square - big_square) / (1 / small - 1 / big)

One step's result is mostly noise itself. So take the mean of |G|^2 over all steps, and the mean of S, and only then
divide one by the other.

Check it with `mpcourse check e09_noise_scale`. Stuck? `mpcourse hint e09_noise_scale`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def noise_scale(gradients, examples):
    """The noise scale S / |G|^2 from the gradients of some steps, a float, in examples.

    gradients: a list with a tensor for each step, float64, of shape (ranks, parameters): each row is the gradient of
    one rank's own batch, a mean over its examples. There are two ranks or more, as many in every step.
    examples: int, in each rank's batch.
    small_square is the mean of |g|^2 over the ranks, big_square is |g|^2 of the mean of all ranks' gradients.
    Returns math.inf where the mean of |G|^2 is not above 0: then the gradient is lost in the noise.
    """
    # solution: |G|^2 and S of each step, their means over steps, then the quotient
    ranks = gradients[0].shape[0]
    small, big = examples, examples * ranks
    squares, traces = 0.0, 0.0
    for rows in gradients:
        small_square = rows.square().sum(1).mean().item()
        big_square = rows.mean(0).square().sum().item()
        squares += (big * big_square - small * small_square) / (big - small)
        traces += (small_square - big_square) / (1 / small - 1 / big)
    return traces / squares if squares > 0 else float("inf")
    # end of solution
