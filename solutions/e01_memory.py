"""Exercise e01: the memory of one training step, to the byte.

The network is that of lesson 01: linear layers with biases, a ReLU after each of them except the last, and
cross-entropy as the loss. Labels are int64 (8 bytes), and all other numbers are float32 (4 bytes).

`training_bytes([784, 1000, 1000, 10], 100, "adam")` is for a network 784-1000-1000-10 and a batch of 100 images. The
check builds this network, trains it for one step, and measures what torch really holds.

Check it with `mpcourse check e01`. Stuck? `mpcourse hint e01`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def training_bytes(widths, batch, optimizer):
    """Return the bytes that one training step holds, by kind.

    widths: a list of two ints or more, the number of units in each layer, beginning with the input.
    batch: the number of examples in the batch, an int. optimizer: "sgd", "momentum" (SGD with momentum) or "adam".
    Returns a dict of ints, Python's or numpy's:
        "parameters"   weights and biases
        "gradients"    what backward leaves in .grad
        "optimizer"    what the optimizer keeps from one step to the next. Adam also counts its steps, in one
                       4-byte number for each parameter tensor.
        "activations"  what autograd saves in the forward pass for the backward pass, without parameters. A
                       tensor that two operations save is counted once. The loss saves its log-probabilities, the
                       labels, and one 4-byte number (the sum of the class weights).
    """
    # solution: return the bytes of one training step, by kind
    layers = list(zip(widths, widths[1:], strict=False))
    parameters = 4 * sum(n * m + m for n, m in layers)
    tensors = 2 * len(layers)  # a weight and a bias for each layer
    # The gradient of a weight is the gradient of the output times the input, so each layer's input is saved. The ReLU
    # before the layer needs only its own output, which is the same tensor.
    inputs = 4 * batch * sum(n for n, _ in layers)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {
        "parameters": parameters,
        "gradients": parameters,
        "optimizer": {"sgd": 0, "momentum": parameters, "adam": 2 * parameters + 4 * tensors}[optimizer],
        "activations": inputs + loss,
    }
    # end of solution
