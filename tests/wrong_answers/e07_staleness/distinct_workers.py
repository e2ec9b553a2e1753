# says: how many other workers pushed in between
# thinks: staleness is the number of workers that were faster.
"""Exercise e07: staleness."""


def staleness(history):
    since, result = {}, []
    for kind, worker in history:
        if kind == "pull":
            since[worker] = set()
        else:
            if worker not in since:
                raise ValueError(f"worker {worker} never pulled")
            result.append(len(since[worker]))
            for other in since:
                if other != worker:
                    since[other].add(worker)
    return result
