# says: Those are distances in the list
# thinks: how old something is, is how far back it lies.
"""Exercise e07: staleness."""


def staleness(history):
    pulled, result = {}, []
    for i, (kind, worker) in enumerate(history):
        if kind == "pull":
            pulled[worker] = i
        elif worker not in pulled:
            raise ValueError(f"worker {worker} never pulled")
        else:
            result.append(i - pulled[worker])
    return result
