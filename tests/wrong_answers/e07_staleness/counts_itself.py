# says: That counts the push itself
# thinks: the push makes a new version, so I count it first.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            version += 1
            result.append(version - pulled[worker])
    return result
