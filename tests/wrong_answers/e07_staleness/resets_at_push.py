# says: as if a push brought it new weights
# thinks: after a push the worker starts again from the new weights.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
            pulled[worker] = version
    return result
