# says: Is 0 taken for nothing?
# thinks: .get gives None where there is no pull, and None is false.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if not pulled.get(worker):
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
    return result
