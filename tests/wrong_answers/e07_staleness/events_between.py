# says: That counts pulls, too
# thinks: whatever happened in between makes it older.
"""Exercise e07: staleness."""


def staleness(history):
    pulled, result = {}, []
    for i, (kind, worker) in enumerate(history):
        if kind == "pull":
            pulled[worker] = i
        elif worker not in pulled:
            raise ValueError(f"worker {worker} never pulled")
        else:
            result.append(len(history[pulled[worker] + 1 : i]))
    return result
