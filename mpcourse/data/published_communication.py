"""Published results of training with less communication, each with its source and its setting."""

# Arthur Douillard and others, DiLoCo, 2023, https://arxiv.org/abs/2311.08105, as others quote it: a transformer of
# 150 million parameters, 8 replicas, 500 inner steps. Table 2: perplexity on the validation text. The names are ours.
DILOCO = {"one replica": 16.23, "8 times the batch": 15.30, "DiLoCo": 15.02, "8 times the steps": 14.72}

# Arthur Douillard and others, Streaming DiLoCo, 2025, https://arxiv.org/abs/2501.18512, as others quote it: the
# bandwidth (Gbit/s) with which a replica computes for so many percent of the time, found by a simulation. By the
# parameters (billions), the seconds of a step, and the inner steps; 1 is data parallelism.
UTILISATION = (50, 80, 90, 95, 99)  # percent
BANDWIDTH = {
    (10, 0.8, 1): (104.8, 184.2, 222.3, 222.3, 390.7),
    (10, 0.8, 10): (16.0, 49.4, 86.8, 152.6, 222.3),
    (10, 0.8, 100): (1.4, 6.2, 13.3, 23.3, 86.8),
    (405, 26, 1): (126.5, 222.3, 268.3, 323.8, 323.8),
    (405, 26, 100): (2.0, 7.5, 16.0, 33.9, 126.5),
}

# Thijs Vogels and others, PowerSGD, 2019, table 3, https://arxiv.org/abs/1905.13727: ResNet-18 on CIFAR-10, 16 workers
# with 128 images each. By the rank, None for SGD: accuracy (percent), megabytes an epoch, milliseconds a step. Noted
# from memory: the megabytes follow from the model's shapes, the other columns were not checked at the source.
POWER_SGD = {None: (94.3, 1023, 312), 1: (93.6, 4, 229), 2: (94.4, 8, 239), 4: (94.5, 14, 260)}
