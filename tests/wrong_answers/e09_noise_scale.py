"""Wrong answers to e09_noise_scale. What a cell holds is told in tests/answers.py."""

# %% big_gradient_is_true
# says: It is too large, by S / big
# thinks: The mean of all ranks is the true gradient.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append(b)
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% big_is_ranks
# says: and not the number of ranks
# thinks: Small batch: 1 rank, big batch: all ranks.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = 1, ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% both_sizes_alike
# says: Which number is 0 there?
# thinks: Every rank has as many examples as the other.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% crossed_sizes
# says: each square is multiplied by its own size
# thinks: Big goes with small.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * s - small * b) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% difference_is_trace
# says: small_square - big_square is not S yet
# thinks: The variance is the difference of squares.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append(s - b)
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% divides_by_sizes
# says: not of the sizes themselves
# thinks: Divide by the difference of the sizes, as in the first formula.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (big - small))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% examples_of_all
# says: That takes examples for all of them together
# thinks: Examples is the batch size of the training.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples / ranks, examples
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% first_step
# says: That is the first step's alone
# thinks: Return as soon as it is known.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        return (s - b) / (1 / small - 1 / big) / G[0] if G[0] > 0 else math.inf
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% forgets_to_divide
# says: Look at one step with two ranks by hand
# thinks: big_square and small_square are weighed by their sizes.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append(big * b - small * s)
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% gradient_by_the_difference
# says: A noise scale is not negative here
# thinks: Both unknowns come from the difference of the squares.
def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((b - s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G)


# %% in_place
# says: The gradients still belong to the caller
# thinks: It saves memory.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        mean = rows.mean(0)
        s = rows.square_().sum(1).mean().item()
        b = (mean**2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% inf_by_step
# says: several are not
# thinks: A step without a signal has an infinite noise scale, so leave it out.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        if big * b - small * s <= 0:
            continue
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% last_step
# says: That is the last step's alone
# thinks: The last estimate is the best one.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return S[-1] / G[-1] if G[-1] > 0 else math.inf


# %% lengths
# says: The length itself is not what the formulas take
# thinks: |g| is the norm.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = rows.norm(dim=1).mean().item()
        b = rows.mean(0).norm().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% list
# says: Average |G|^2 over steps, and S over steps, then divide once
# thinks: One noise scale a step.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return [s / g for s, g in zip(S, G)]


# %% mean_in_one_square
# says: The mean over parameters in one square
# thinks: Mean squares.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% mean_in_the_big_square
# says: The sum over parameters in one square, their mean in the other
# thinks: The mean gradient has a mean square.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).mean().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% mean_of_quotients
# says: That is the mean of each step's own quotient
# thinks: Average the noise scales of the steps.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(s / g for s, g in zip(S, G)) / len(G)


# %% mean_of_squares_twice
# says: Both squares are the same there
# thinks: The mean over ranks of the squares.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows**2).mean(0).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% mean_over_sum
# says: S is a mean over steps, |G|^2 a sum
# thinks: |G|^2 adds up, S is an average.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / len(S) / sum(G) if sum(G) > 0 else math.inf


# %% multiplies
# says: S is divided by (1 / small - 1 / big), and not multiplied
# thinks: Times the difference.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) * (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% negative_is_returned
# says: the answer is math.inf
# thinks: A quotient is a quotient.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) else math.inf


# %% no_return
# says: Nothing came back
# thinks: The last line is the result.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    result = sum(S) / sum(G)


# %% over_the_spread_of_steps
# says: NaN is 0 / 0: is something divided before
# thinks: Noisy numbers are measured by their spread over steps.
import torch


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return (torch.tensor(S).std() / torch.tensor(G).std()).item()


# %% rank_0_alone
# says: That is rank 0's alone
# thinks: Any rank will do as the small batch.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows[0] ** 2).sum().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% sign
# says: S has the wrong sign
# thinks: Big minus small, as in the first formula.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((b - s) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% small_gradient_is_true
# says: It is mostly noise: use the first formula
# thinks: A rank's gradient is the gradient.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append(s)
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% small_is_one
# says: That takes 1 example for small
# thinks: The small batch is one example.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = 1, examples
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% square_of_mean_twice
# says: Both squares are the same there
# thinks: The square of the mean over ranks.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows.mean(0) ** 2).sum().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% square_of_sum
# says: That is the square of the sum of all numbers
# thinks: sum, then square.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows.sum(1) ** 2).mean().item()
        b = (rows.mean(0).sum() ** 2).item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% sum_of_gradients
# says: That is of the sum of all ranks' gradients
# thinks: An all-reduce sums.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.sum(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% sum_over_mean
# says: One of the two is a sum over steps, the other a mean
# thinks: S adds up, |G|^2 is an average.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / (sum(G) / len(G)) if sum(G) > 0 else math.inf


# %% sum_over_ranks
# says: That is the sum over ranks
# thinks: sum all squares.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% tensor
# says: .item() makes one of a tensor
# thinks: A tensor with one number is a number.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean()
        b = (rows.mean(0) ** 2).sum()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf


# %% trace_alone
# says: That is S alone
# thinks: S is the noise scale.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / len(S)


# %% upside_down
# says: That is upside down
# thinks: Signal over noise.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(G) / sum(S) if sum(S) > 0 else math.inf


# %% zero_division
# says: Where the mean of |G|^2 is 0
# thinks: It will not be 0.
import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) >= 0 else math.inf
