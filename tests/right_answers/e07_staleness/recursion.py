"""Exercise e07: the last event first."""


def staleness(history):
    if not history:
        return []
    *before, (kind, worker) = history
    result = staleness(before)
    if kind == "pull":
        return result
    pulls = [i for i, event in enumerate(before) if event == ("pull", worker)]
    if not pulls:
        raise ValueError(f"worker {worker}: push before pull")
    return result + [[k for k, _ in before[pulls[-1] :]].count("push")]
