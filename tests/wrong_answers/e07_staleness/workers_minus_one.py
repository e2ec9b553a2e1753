# says: the number of workers minus 1
# thinks: the lesson says that staleness is p - 1.
"""Exercise e07: staleness."""


def staleness(history):
    workers = {w for _, w in history}
    result, pulled = [], set()
    for kind, worker in history:
        if kind == "pull":
            pulled.add(worker)
        elif worker not in pulled:
            raise ValueError(f"worker {worker} never pulled")
        else:
            result.append(len(workers) - 1)
    return result
