"""FLOPs that a step of a language model needs, by its authors' own count: what TFLOP/s in published tables mean."""


def recomputed_flops(batch: int, length: int, layers: int, width: int, vocabulary: int) -> float:
    """FLOPs of a step with all activations recomputed (Narayanan et al. 2021, equation 3): products of the layers,
    forward twice and backward, and of the logits.

    batch: sequences.
    length: tokens of a sequence.
    layers: of the model.
    width: numbers that stand for a token.
    vocabulary: kinds of tokens.

    Attention is counted without a causal mask.
    """
    s, h = length, width
    return 96 * batch * s * layers * h * h * (1 + s / (6 * h) + vocabulary / (16 * layers * h))


def model_flops(parameters: float, layers: int, width: int, length: int, tokens: float, masked: bool = False) -> float:
    """FLOPs of a step, nothing recomputed (Chowdhery et al. 2022, appendix B): 6 a parameter and token, and attention.

    parameters: of the model.
    layers: of the model.
    width: numbers that stand for a token.
    length: tokens of a sequence.
    tokens: of all sequences of the step.
    masked: whether attention is counted under a causal mask, which leaves half of it.
    """
    return tokens * (6 * parameters + (6 if masked else 12) * layers * width * length)
