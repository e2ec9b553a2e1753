# says: KeyError came by itself
# thinks: the dictionary complains anyway.
"""Exercise e07: staleness."""


def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            result.append(version - pulled[worker])
            version += 1
    return result
