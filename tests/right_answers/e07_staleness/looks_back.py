"""Exercise e07: for each push, look back for the pull."""


def staleness(history):
    result = []
    for i, (kind, worker) in enumerate(history):
        if kind != "push":
            continue
        between = 0
        for other, who in reversed(history[:i]):
            if (other, who) == ("pull", worker):
                break
            between += other == "push"
        else:
            raise ValueError(f"no pull of worker {worker} before its push")
        result.append(between)
    return result
