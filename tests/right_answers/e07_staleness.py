"""Unusual right answers to e07_staleness. What a cell holds is told in tests/answers.py."""

# %% ages_in_a_dict
# thinks: Each worker has an age that its pull sets to 0 and every push raises by one, its own included, so nothing is
#   subtracted.
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


# %% class_and_generator
# thinks: A small server counts versions of the weights, and the generator passes on the answers to pushes only.
class Server:
    def __init__(self):
        self.version = 0
        self.held = {}

    def pull(self, worker):
        self.held[worker] = self.version

    def push(self, worker):
        if worker not in self.held:
            raise ValueError(f"{worker} has no weights")
        self.version += 1
        return self.version - 1 - self.held[worker]


def _run(server, history):
    for kind, worker in history:
        answer = getattr(server, kind)(worker)
        if kind == "push":
            yield answer


def staleness(history):
    return list(_run(Server(), history))


# %% looks_back
# thinks: From each push it goes back to the worker's last pull and counts pushes on the way, which is slow, but is
#   the definition.
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


# %% numpy_sums
# thinks: Cumulative sums tell how many pushes came before each event, and the difference to the last pull's is the
#   staleness.
import numpy as np


def staleness(history):
    kinds = np.array([kind == "push" for kind, _ in history], dtype=int)
    workers = np.array([worker for _, worker in history], dtype=int)
    versions = np.cumsum(kinds) - kinds
    result = []
    for at in np.flatnonzero(kinds):
        pulls = np.flatnonzero((kinds[:at] == 0) & (workers[:at] == workers[at]))
        if not len(pulls):
            raise ValueError(f"worker {workers[at]} never pulled")
        result.append(versions[at] - versions[pulls[-1]])
    return result


# %% recursion
# thinks: The last event is taken off and the rest is solved by the same function; a last push counts the pushes since
#   its pull.
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
