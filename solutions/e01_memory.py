"""Exercise e01: the memory of one training step, to the byte.

The network is the one of lesson 01: Linear layers with bias, a ReLU between each two, no ReLU after the last, and
cross-entropy as the loss. All numbers are float32 (4 bytes); labels are int64 (8 bytes).

`training_bytes([784, 1000, 1000, 10], 100, "adam")` is about a network 784-1000-1000-10 and a batch of 100 images.
The check builds that network, trains it for one step, and measures what torch really holds.

Check it with `mpcourse check e01`. Stuck? `mpcourse hint e01`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def training_bytes(widths, batch, optimizer):
    """Bytes that one training step holds, by kind.

    widths: list of ints, the number of units of each layer, input first; at least two of them.
    batch: int, examples in the batch. optimizer: "sgd", "momentum" (SGD with momentum) or "adam".
    Returns a dict of ints, Python's or numpy's:
        "parameters"   weights and biases
        "gradients"    what backward leaves in .grad
        "optimizer"    what the optimizer keeps from one step to the next (Adam also counts its steps: one
                       4-byte number for each parameter tensor)
        "activations"  what autograd saves in the forward pass for the backward pass, parameters not counted. A
                       tensor that two operations save is counted once. The loss saves its log-probabilities, the
                       labels, and one 4-byte number (the sum of the class weights).
    """
    # solution: return the bytes of one training step, by kind
    layers = list(zip(widths, widths[1:], strict=False))
    parameters = 4 * sum(n * m + m for n, m in layers)
    tensors = 2 * len(layers)  # a weight and a bias for each layer
    # The gradient of a weight is (gradient of the output) x (input): so each layer's input is kept. The ReLU before it
    # needs only its own output, which is that very tensor.
    inputs = 4 * batch * sum(n for n, _ in layers)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {
        "parameters": parameters,
        "gradients": parameters,
        "optimizer": {"sgd": 0, "momentum": parameters, "adam": 2 * parameters + 4 * tensors}[optimizer],
        "activations": inputs + loss,
    }
    # end of solution
