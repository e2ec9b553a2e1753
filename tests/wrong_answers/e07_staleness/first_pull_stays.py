# says: That counts from the worker's first pull
# thinks: a worker that has the weights need not take them again.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled.setdefault(worker, version)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
    return result
