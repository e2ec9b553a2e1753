"""Wrong answers to e01_memory. What a cell holds is told in tests/answers.py."""

# %% activation_gradients_in_activations
# says: what the forward pass saves
# thinks: Each activation has a gradient, which is kept beside it.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * (sum(widths[:-1]) + sum(widths[1:]))
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% activations_key_missing
# says: have the key 'activations'
# thinks: Activations do not count as memory of the step; autograd cleans them up.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    return {"parameters": parameters, "gradients": gradients, "optimizer": state}


# %% adam_keeps_one
# says: two numbers for each parameter
# thinks: Adam keeps one number for each parameter, the running mean of the gradient.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_keeps_three
# says: two numbers for each parameter
# thinks: Adam keeps two moments and a copy of the gradient.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 3 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_one_step_count
# says: one for each parameter tensor
# thinks: Adam counts its steps once for the whole network.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_second_moment_per_tensor
# says: two numbers for each parameter
# thinks: Adam's second moment is one number for each tensor.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = parameters + 4 * 2 * len(layers) * 2
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_step_count_8_bytes
# says: 4 bytes, not 8
# thinks: A count is an int64.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 8 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_step_count_per_layer
# says: a weight and a bias are two tensors
# thinks: Weight and bias of a layer are one tensor.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_step_count_per_number
# says: one for each parameter tensor
# thinks: Adam counts the steps of every single parameter.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + parameters
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% adam_without_step_counts
# says: a step count
# thinks: Adam keeps two moments and nothing else.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% always_adam
# says: depends on `optimizer`
# thinks: The example says adam, so it is always Adam.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% appends_to_widths
# says: leave its arguments as they are
# thinks: The list is mine, so I can add the loss as one more layer at the end.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    widths.append(widths[-1])
    saved = 4 * batch * sum(widths[:-2])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% at_least_one_hidden_layer
# says: right for other networks
# thinks: There is always a hidden layer, so the hidden part starts at widths[1].
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    hidden = widths[1] + sum(widths[2:-1])
    saved = 4 * batch * (widths[0] + hidden)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% batch_forgotten
# says: forgot the batch
# thinks: One example is in memory at a time.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * sum(widths[:-1])
    loss = 4 * widths[-1] + 8 + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% batch_forgotten_in_hidden
# says: forgot the batch
# thinks: Only the input and the labels are as many as the batch.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * (batch * widths[0] + sum(widths[1:-1]))
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% bias_forgotten
# says: Each layer has a bias too
# thinks: A layer from n to m units has n x m numbers.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% bias_per_input
# says: a bias for each output
# thinks: A layer has one bias for each of its inputs.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + n for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% bits
# says: bits, not bytes
# thinks: A float32 takes 32, so one multiplies by 32.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 32 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 32 * 2 * len(layers)
    saved = 32 * batch * sum(widths[:-1])
    loss = 32 * batch * widths[-1] + 64 * batch + 32
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% class_weight_for_each_class
# says: not a weight for each class
# thinks: The loss saves a weight for each class.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4 * widths[-1]
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% division_makes_floats
# says: ints and not floats
# thinks: Bits divided by 8 with / is an int, because it comes out even.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = batch * sum(widths[:-1]) * 32 / 8
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% everything_times_batch
# says: does not depend on the batch
# thinks: Every example of the batch needs its own copy of the network.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * batch * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% float64
# says: float32 has 4 bytes
# thinks: Numbers in Python and torch have 8 bytes.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 8 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 8 * batch * sum(widths[:-1])
    loss = 8 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% floats
# says: ints and not floats
# thinks: A byte count may be a float.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {
        "parameters": float(parameters),
        "gradients": float(gradients),
        "optimizer": float(state),
        "activations": float(saved + loss),
    }


# %% gradients_forgotten
# says: every parameter has a .grad
# thinks: Gradients are thrown away once the optimizer has used them.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = 0
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% gradients_of_activations_too
# says: what it leaves in .grad
# thinks: Backward also leaves a gradient for every activation.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters + 4 * batch * sum(widths[1:])
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% gradients_of_the_input_too
# says: The input has no .grad
# thinks: Backward leaves a gradient on the input images, too.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters + 4 * batch * widths[0]
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% gradients_of_weights_only
# says: the biases' gradients
# thinks: Only weights have gradients.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = 4 * sum(n * m for n, m in layers)
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% gradients_times_batch
# says: summed over the batch
# thinks: Each example of the batch has its own gradient.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = batch * parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% half_precision
# says: float32 has 4 bytes
# thinks: Training keeps its numbers in 2 bytes.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 2 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 2 * batch * sum(widths[:-1])
    loss = 2 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% hard_coded_batch
# says: Use the batch
# thinks: The batch has always 100 images.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    batch = 100
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% hard_coded_four_widths
# says: in the call training_bytes([
# thinks: A network has always four widths, as in the example.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    a, b, c, d = widths
    layers = [(a, b), (b, c), (c, d)]
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% hard_coded_one_network
# says: right for other networks
# thinks: It is about the network 784-1000-1000-10 of the lesson.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    widths = [784, 1000, 1000, 10]
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% hard_coded_ten_classes
# says: 10 classes hard-coded
# thinks: There are always ten classes.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * 10 + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% hidden_forgotten
# says: forgot the hidden layers
# thinks: Only what goes in and what comes out has to be kept.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * widths[0]
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% hidden_layers_all_alike
# says: right for other networks
# thinks: All hidden layers have the width of the first one.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * (widths[0] + (len(widths) - 2) * widths[1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% infinite_activations
# says: inf is a division by 0
# thinks: The activations are not known in advance: there is no limit to them.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    sizes = {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
    sizes["activations"] = float("inf")
    return sizes


# %% input_forgotten
# says: forgot the input
# thinks: The input is data and no activation.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[1:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% key_error_for_sgd
# says: 100, 'sgd')
# thinks: A table of the optimizers that keep something is enough.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    state = {"momentum": parameters, "adam": 2 * parameters + 4 * 2 * len(layers)}[optimizer]
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% kibibytes
# says: bytes, not KiB
# thinks: Memory is given in kilobytes.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {
        "parameters": parameters // 1024,
        "gradients": gradients // 1024,
        "optimizer": state // 1024,
        "activations": (saved + loss) // 1024,
    }


# %% labels_4_bytes
# says: 8 bytes each, not 4
# thinks: A label has 4 bytes, as all numbers have.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 4 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% labels_forgotten
# says: forgot the labels
# thinks: Labels are data and not saved.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% labels_one_hot
# says: one label for each example
# thinks: A label is a vector with a one at the right class.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch * widths[-1] + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% last_layer_forgotten
# says: The last layer has parameters
# thinks: Three widths make one layer between the first two; the last is only the output.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers[:-1])
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% log_probabilities_forgotten
# says: forgot the log-probabilities
# thinks: The loss saves the labels and one number.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% loss_forgotten
# says: what the loss saves
# thinks: Activations are what the layers save; the loss is not a layer.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved}


# %% loss_number_forgotten
# says: the single 4-byte number
# thinks: The loss saves the log-probabilities and the labels.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% loss_of_each_example
# says: not for each example
# thinks: The loss saves one number for each example.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4 * batch
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% loss_value_counted
# says: The loss itself is not saved
# thinks: The value of the loss is saved as well.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4 + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% measures_with_getsizeof
# says: sys.getsizeof of a tensor
# thinks: sys.getsizeof tells how many bytes a tensor's numbers take.
import sys
import torch


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    tensors = [torch.zeros(m, n) for n, m in layers] + [torch.zeros(m) for _, m in layers]
    parameters = sum(sys.getsizeof(t) for t in tensors)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% mebibytes
# says: bytes, not MiB
# thinks: Memory is given in MiB.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    sizes = {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
    return {kind: size / 2**20 for kind, size in sizes.items()}


# %% momentum_counts_steps
# says: Momentum counts no steps
# thinks: Every optimizer with a state counts its steps.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters + 4 * 2 * len(layers)
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% momentum_keeps_nothing
# says: Momentum keeps one number
# thinks: Momentum is a setting of SGD, and SGD keeps nothing.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = 0
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% momentum_keeps_one_number
# says: one number for each parameter
# thinks: Momentum is one number, 0.9.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = 4
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% momentum_keeps_two
# says: Momentum keeps one number
# thinks: Momentum keeps the velocity and the last gradient.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = 2 * parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% names_as_in_torch
# says: lower case: 'adam'
# thinks: The optimizers are named as in torch: SGD and Adam.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    state = 0
    if optimizer == "momentum":
        state = parameters
    elif optimizer == "Adam":
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% nan_activations
# says: NaN is 0/0
# thinks: What is not known is NaN.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    sizes = {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
    sizes["activations"] = float("nan")
    return sizes


# %% none_for_the_optimizer
# says: There is None under 'optimizer'
# thinks: SGD keeps nothing, and nothing is None.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    sizes = {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
    sizes["optimizer"] = state or None
    return sizes


# %% numbers_not_bytes
# says: numbers, not bytes
# thinks: The size of a tensor is how many numbers it has.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 2 * len(layers)
    saved = batch * sum(widths[:-1])
    loss = batch * widths[-1] + batch + 1
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% one_bias_per_layer
# says: a bias for each output
# thinks: A layer has a single bias number.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + 1 for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% one_log_probability_each
# says: log-probabilities of all classes
# thinks: The loss keeps the log-probability of the right class only.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% only_the_largest_activation
# says: All layers at once
# thinks: A layer's activation is freed when the next layer is done, so the largest counts.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * max(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% optimizer_counts_parameters_too
# says: Plain SGD keeps nothing
# thinks: The optimizer holds the parameters, so they are part of its memory.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {
        "parameters": parameters,
        "gradients": gradients,
        "optimizer": state + parameters,
        "activations": saved + loss,
    }


# %% optimizer_key_is_its_name
# says: the key 'optimizer'
# thinks: The key for the optimizer's state is the optimizer's name.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, optimizer: state, "activations": saved + loss}


# %% output_and_log_probabilities
# says: counts the output as well
# thinks: The last layer's output is saved, and the log-probabilities as well.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% parameters_in_numbers
# says: numbers, not bytes
# thinks: `parameters` asks for the number of parameters, the rest for bytes.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters // 4, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% pops_from_widths
# says: leave its arguments as they are
# thinks: The list is mine, so I can take it apart.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    inputs = []
    layers = []
    while len(widths) > 1:
        n = widths.pop(0)
        inputs.append(n)
        layers.append((n, widths[0]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(inputs)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% prints_instead_of_returning
# says: Return one dict
# thinks: Printing the dict is giving it back.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    print({"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss})


# %% relu_counted_twice
# says: a ReLU's output twice
# thinks: The ReLU saves its output and the next layer saves its input, which are two tensors.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * (sum(widths[:-1]) + sum(widths[1:-1]))
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% relu_mask
# says: A ReLU saves no mask
# thinks: The ReLU saves one byte for each unit: on or off.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1]) + batch * sum(widths[1:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% returns_a_tuple
# says: Return one dict
# thinks: Four numbers in the order of the docstring will do.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return parameters, gradients, state, saved + loss


# %% returns_strings
# says: not a string
# thinks: Sizes are to be read, so they are text with a unit.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    sizes = {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
    return {kind: f"{size} bytes" for kind, size in sizes.items()}


# %% returns_the_total
# says: Return one dict
# thinks: The memory of a step is one number, the sum.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return parameters + gradients + state + saved + loss


# %% sgd_keeps_the_gradient
# says: Plain SGD keeps nothing
# thinks: Every optimizer keeps at least one number for each parameter.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = parameters
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% short_key_names
# says: the key 'parameters'
# thinks: The names of the keys are up to me.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"params": parameters, "grads": gradients, "optimizer": state, "activations": saved + loss}


# %% singular_key_names
# says: the key 'activations'
# thinks: The key for the saved tensors is `activation`.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activation": saved + loss}


# %% sums_over_calls
# says: keeps what earlier calls left
# thinks: The function is called only once, so the sums may live outside of it.
total = {"parameters": 0, "gradients": 0, "optimizer": 0, "activations": 0}


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    for n, m in zip(widths[:-1], widths[1:]):
        total["parameters"] += 4 * (n * m + m)
        total["gradients"] += 4 * (n * m + m)
        total["optimizer"] += {"sgd": 0, "momentum": 1, "adam": 2}[optimizer] * 4 * (n * m + m)
        total["optimizer"] += 8 if optimizer == "adam" else 0
        total["activations"] += 4 * batch * n
    total["activations"] += 4 * batch * widths[-1] + 8 * batch + 4
    return total


# %% unbound_for_sgd
# says: 100, 'sgd')
# thinks: For SGD there is nothing to do, so there is no branch for it.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "momentum":
        state = parameters
    elif optimizer == "adam":
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% weights_in_activations
# says: not counted again
# thinks: Autograd saves the weights for backward, so they are activations as well.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1]) + 4 * sum(n * m for n, m in layers[1:])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% widths_are_layers
# says: 4 widths make 3 layers
# thinks: Every width is a layer, so Adam counts steps for two tensors of each width.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(widths)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% last_bias_missing
# says: last layer's bias
# thinks: The last layer has no bias.
def training_bytes(widths, batch, optimizer):
    layers = list(zip(widths, widths[1:]))
    p = 4 * (sum(n * m + m for n, m in layers) - widths[-1])
    a = 4 * batch * (sum(widths[:-1]) + widths[-1]) + 8 * batch + 4
    o = {"sgd": 0, "momentum": p, "adam": 2 * p + 8 * len(layers) - 4}[optimizer]
    return {"parameters": p, "gradients": p, "optimizer": o, "activations": a}


# %% first_bias_missing
# says: first layer's bias
# thinks: The first layer has no bias.
def training_bytes(widths, batch, optimizer):
    layers = list(zip(widths, widths[1:]))
    p = 4 * (sum(n * m + m for n, m in layers) - widths[1])
    a = 4 * batch * (sum(widths[:-1]) + widths[-1]) + 8 * batch + 4
    o = {"sgd": 0, "momentum": p, "adam": 2 * p + 8 * len(layers) - 4}[optimizer]
    return {"parameters": p, "gradients": p, "optimizer": o, "activations": a}


# %% state_kept
# says: keeps what earlier calls left
# thinks: What a network needs depends on its widths.
_known = {}
def training_bytes(widths, batch, optimizer):
    key = tuple(widths)
    if key not in _known:
        layers = list(zip(widths, widths[1:]))
        p = 4 * (sum(n * m + m for n, m in layers))
        a = 4 * batch * (sum(widths[:-1]) + widths[-1]) + 8 * batch + 4
        o = {"sgd": 0, "momentum": p, "adam": 2 * p + 8 * len(layers)}[optimizer]
        _known[key] = {"parameters": p, "gradients": p, "optimizer": o, "activations": a}
    return _known[key]


# %% totals_kept
# says: keeps what earlier calls left
# thinks: One dict serves all calls.
result = {"parameters": 0, "gradients": 0, "optimizer": 0, "activations": 0}
def training_bytes(widths, batch, optimizer):
    layers = list(zip(widths, widths[1:]))
    p = 4 * (sum(n * m + m for n, m in layers))
    result["parameters"] += p
    result["gradients"] += p
    result["activations"] += 4 * batch * (sum(widths[:-1]) + widths[-1]) + 8 * batch + 4
    result["optimizer"] += {"sgd": 0, "momentum": p, "adam": 2 * p + 8 * len(layers)}[optimizer]
    return result


# %% library_memory
# says: e01_memory to be written in your own file
# thinks: The library has what is asked already.
from mpcourse.one_device.step_memory import *
import mpcourse.one_device.step_memory
def training_bytes(widths, batch, optimizer):
    from mpcourse.course.check.cases.e01_memory import measured
    return measured(tuple(widths), batch, optimizer).as_dict()


# %% only_the_last_bias
# says: Only the last layer's bias is there
# thinks: Hidden layers need no bias.
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
    layers = list(zip(widths, widths[1:], strict=False))
    parameters = 4 * sum(n * m + m * (m == widths[-1]) for n, m in layers)
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


# %% numbers_of_all_calls
# says: The same call gives another result each time
# thinks: A module keeps the number of the loss, and adds to it.
kept = [4]


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    kept[0] += saved + loss
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": kept[0]}


# %% input_has_a_bias
# says: the network's input has none
# thinks: Every width has a bias.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m for n, m in layers) + 4 * sum(widths)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% only_the_first_bias
# says: Only the first layer's bias is there
# thinks: One bias is enough, where the network begins.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m for n, m in layers) + 4 * widths[1]
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% first_and_last_bias
# says: Only the first and the last layer's bias is there
# thinks: Biases are for what goes in and for what comes out.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m for n, m in layers) + 4 * (widths[1] + widths[-1]) * (len(layers) > 1)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% first_weight_missing
# says: The first layer's weight is missing
# thinks: The input is no layer, so nothing leads from it.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m for n, m in layers[1:]) + 4 * sum(widths[1:])
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% last_weight_missing
# says: The last layer's weight is missing
# thinks: The output is no layer, so nothing leads to it.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m for n, m in layers[:-1]) + 4 * sum(widths[1:])
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% momentum_like_adam
# says: That is Adam's state. Momentum keeps one number
# thinks: Whoever keeps something keeps what Adam keeps.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = 2 * parameters + 4 * 2 * len(layers)
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}


# %% labels_and_number_forgotten
# says: You forgot the labels (8 bytes each)
# thinks: The loss saves its log-probabilities.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1]
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
