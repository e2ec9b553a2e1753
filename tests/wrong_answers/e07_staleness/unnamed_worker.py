# says: Who reads the error wants to know which worker it was
# thinks: a ValueError is asked, and here it is.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError("push before pull")
            result.append(version - pulled[worker])
            version += 1
    return result
