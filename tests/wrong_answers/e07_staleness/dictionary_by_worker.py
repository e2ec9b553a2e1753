# says: A worker pushes more than once
# thinks: each worker has its staleness.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, {}
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result[worker] = version - pulled[worker]
            version += 1
    return result
