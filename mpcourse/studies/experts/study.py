"""The study that lesson 14 shows: what is trained, and for how long. lessons/studies/experts.py trains it."""

EXPERTS = 8  # of each layer
SEEDS = 5
STEPS, EVERY = 800, 50  # of a training, and between two validations
SEQUENCES = 16  # in a step, of all ranks together

# Of each way: experts of a token, the capacity factor, and the weight of the balance loss. None: no experts.
WAYS: dict[str, tuple[int, float | None, float] | None] = {
    "dense": None,
    "8 experts": (1, 1.25, 0.01),
    "8 experts, no balance loss": (1, 1.25, 0.0),
}
