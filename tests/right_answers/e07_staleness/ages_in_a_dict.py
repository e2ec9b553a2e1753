"""Exercise e07: every worker's age grows with each push."""


def staleness(history):
    age, result = {}, []
    for kind, worker in history:
        if kind == "pull":
            age[worker] = 0
            continue
        try:
            result.append(age[worker])
        except KeyError:
            raise ValueError("never pulled: " + str(worker)) from None
        age = {w: a + 1 for w, a in age.items()}
    return result
