# says: It may push twice after one pull
# thinks: one pull, one push: after a push the weights have to be pulled again.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        elif worker in pulled:
            result.append(version - pulled.pop(worker))
            version += 1
        else:
            raise ValueError(f"worker {worker} has not pulled")
    return result
