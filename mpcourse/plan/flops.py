"""FLOPs that a step of a language model needs, as authors count them: what TFLOP/s in published tables means."""


def recomputed_flops(batch: int, length: int, layers: int, width: int, vocabulary: int) -> float:
    """Return the FLOPs of a step with all activations recomputed (Narayanan et al. 2021, equation 3).

    batch: sequences.
    length: tokens in a sequence.
    layers: of the model.
    width: numbers that represent a token.
    vocabulary: number of different tokens.

    Counted are the products of the layers, forward twice and backward, and the logits. Attention is counted without a
    causal mask.
    """
    s, h = length, width
    return 96 * batch * s * layers * h * h * (1 + s / (6 * h) + vocabulary / (16 * layers * h))


def model_flops(parameters: float, layers: int, width: int, length: int, tokens: float, masked: bool = False) -> float:
    """Return the FLOPs of a step without recomputation (Chowdhery et al. 2022, appendix B).

    parameters: of the model.
    layers: of the model.
    width: numbers that represent a token.
    length: tokens in a sequence.
    tokens: in all sequences of the step.
    masked: whether attention is counted under a causal mask, which leaves half of it.

    Counted are 6 per parameter and token, and attention.
    """
    return tokens * (6 * parameters + (6 if masked else 12) * layers * width * length)
