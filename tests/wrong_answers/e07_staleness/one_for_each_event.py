# says: That is one for each event
# thinks: a pull has staleness 0.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
            result.append(0)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
    return result
