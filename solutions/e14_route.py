"""Exercise e14: the router of a mixture of experts.

A mixture of experts has many feed-forward networks, the experts, but each token uses only k of them. A small linear
layer, the router, computes a logit of each token for each expert. The softmax of a token's logits gives the token's
probability of each expert. The token goes to its k most probable experts, and this makes k choices. The result of each
expert is multiplied by its probability, and so the router learns from the loss of the model.

Some experts are chosen more often than others, and the ranks that have the other experts wait. Two things help. An
expert has room for some tokens only, and choices that find no room are dropped: the token goes without this expert. And
a second loss, the balance loss, is added to the loss of the model. It makes experts that are chosen often less
probable.

One process is enough here, because the functions only compute where tokens go. The check calls each of them alone, and
looks at values and at gradients.

Check it with `mpcourse check e14_route`. Stuck? `mpcourse hint e14_route`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import math

import torch


def route(logits, k, room):
    """Return (chosen, weights, kept): each token's k experts, their probabilities, and which choices are kept.

    logits: float64 (tokens, experts), with 1 token or more, and 1 expert or more. They may require a gradient. All of
    them are between -20 and 20, and no two probabilities of a token are equal.
    k: an int, from 1 to the number of experts.
    room: an int, 1 or more: each expert takes at most so many of all choices. None: an expert takes all of them.

    The three results are tensors of shape (tokens, k).
    chosen: int64, the numbers of each token's k most probable experts, the most probable first. Experts are numbered
    from 0. A choice that is dropped stays in `chosen`, and no other expert takes its place.
    weights: float64, the probabilities of the chosen experts, dropped or not. The weights of a token
    add up to less than 1 if there are experts that it has not chosen. Gradients flow through `weights` to `logits`.
    kept: bool, False where a choice is dropped. All choices form a line, and each expert takes its choices in the order
    of this line until it is full. The first choices of all tokens come before all second choices, these before all
    third choices, and so on. Among the first choices, earlier tokens come before later ones. The same holds among the
    second choices, and so on.
    The arguments are not changed.
    """
    # solution: choose each token's experts, look up their probabilities, and drop the choices that find no room
    weights, chosen = logits.softmax(1).topk(k)
    kept = torch.ones_like(chosen, dtype=torch.bool)
    if room is not None:
        line = chosen.T.flatten()
        counts = torch.nn.functional.one_hot(line, logits.shape[1]).cumsum(0)
        places = counts.gather(1, line[:, None])  # 1 for the first choice of an expert
        kept = (places <= room).view(k, -1).T
    return chosen, weights, kept
    # end of solution


def room_for(tokens, experts, k, factor):
    """Return how many choices an expert takes: `factor` times an equal share of all choices, rounded up. An int.

    tokens, experts: ints, 1 or more.
    k: an int, the number of choices of each token, from 1 to `experts`.
    factor: a positive float, the capacity factor.
    The result may be more than `tokens`, and as small as 1. The check has no case in which a rounding error of floats
    changes the result.
    """
    # solution: factor times an equal share of all choices, rounded up
    return math.ceil(factor * tokens * k / experts)
    # end of solution


def balance_loss(logits, chosen):
    """Return the balance loss of a batch, a float64 tensor of shape ().

    logits: as in `route`.
    chosen: int64 (tokens, k), as `route` returns it for these logits. Some experts may be chosen by no token.
    The loss is the number of experts times the sum over the experts of share * mean:
    share: the expert's share of all choices of all tokens, dropped ones included. The shares add up to 1.
    mean: the mean of the expert's probability over all tokens.
    If all shares are equal, the loss is 1. Gradients flow through the means to `logits`, and the shares are constants.
    The arguments are not changed.
    """
    # solution: the number of experts times the sum over the experts of share * mean
    experts = logits.shape[1]
    shares = torch.bincount(chosen.flatten(), minlength=experts).double() / chosen.numel()
    return experts * (shares * logits.softmax(1).mean(0)).sum()
    # end of solution
