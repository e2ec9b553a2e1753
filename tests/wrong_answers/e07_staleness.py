"""Wrong answers to e07_staleness. What a cell holds is told in tests/answers.py."""

# %% by_worker
# says: the right numbers in another order
# thinks: The result has the pushes of worker 0 first, then those of worker 1, and so on.
def staleness(history):
    result, version, seen = {}, 0, {}
    for kind, worker in history:
        if kind == "pull":
            seen[worker] = version
        else:
            if worker not in seen:
                raise ValueError(f"worker {worker} never pulled")
            result.setdefault(worker, []).append(version - seen[worker])
            version += 1
    return [s for worker in sorted(result) for s in result[worker]]


# %% counts_itself
# says: That counts the push itself
# thinks: The push makes a new version, so I count it first.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            version += 1
            result.append(version - pulled[worker])
    return result


# %% dictionary_by_worker
# says: A worker pushes more than once
# thinks: Each worker has its staleness.
def staleness(history):
    version, pulled, result = 0, {}, {}
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result[worker] = version - pulled[worker]
            version += 1
    return result


# %% distance_in_the_list
# says: Those are distances in the list
# thinks: How old something is, is how far back it lies.
def staleness(history):
    pulled, result = {}, []
    for i, (kind, worker) in enumerate(history):
        if kind == "pull":
            pulled[worker] = i
        elif worker not in pulled:
            raise ValueError(f"worker {worker} never pulled")
        else:
            result.append(i - pulled[worker])
    return result


# %% distinct_with_itself
# says: That is how many workers pushed in between
# thinks: Staleness is how many different workers have pushed since the pull, however often each of them did.
def staleness(history):
    result, pulled, log = [], {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = len(log)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(len(set(log[pulled[worker] :])))
            log.append(worker)
    return result


# %% distinct_workers
# says: how many other workers pushed in between
# thinks: Staleness is the number of workers that were faster.
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


# %% eats_the_history
# says: staleness to leave its arguments as they are
# thinks: An event that has been looked at is not needed any more, so I can take it off the list.
def staleness(history):
    result, version, seen = [], 0, {}
    while history:
        kind, worker = history.pop(0)
        if kind == "pull":
            seen[worker] = version
        else:
            if worker not in seen:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - seen[worker])
            version += 1
    return result


# %% events_between
# says: That counts pulls, too
# thinks: Whatever happened in between makes it older.
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


# %% first_pull_since_push
# says: first pull after its last push
# thinks: A worker computes at the first weights that it takes after its push, and a second pull changes nothing.
def staleness(history):
    result, version, seen = [], 0, {}
    pushed = set()
    for kind, worker in history:
        if kind == "pull":
            if worker not in seen or worker in pushed:
                seen[worker] = version
                pushed.discard(worker)
        else:
            if worker not in seen:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - seen[worker])
            pushed.add(worker)
            version += 1
    return result


# %% first_pull_stays
# says: That counts from the worker's first pull
# thinks: A worker that has the weights need not take them again.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled.setdefault(worker, version)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
    return result


# %% key_error
# says: KeyError came by itself
# thinks: The dictionary complains anyway.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            result.append(version - pulled[worker])
            version += 1
    return result


# %% last_pull_of_anybody
# says: That counts from the last pull of anybody
# thinks: A pull says that the weights are fresh.
def staleness(history):
    since, pulled, result = 0, set(), []
    for kind, worker in history:
        if kind == "pull":
            since = 0
            pulled.add(worker)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(since)
            since += 1
    return result


# %% list_by_worker
# says: A list that is indexed by workers
# thinks: Workers are numbered from 1, so worker w is at place w - 1 of a list.
def staleness(history):
    workers = max((w for _, w in history), default=0)
    seen = [None] * workers
    result, version = [], 0
    for kind, worker in history:
        if kind == "pull":
            seen[worker - 1] = version
        else:
            if seen[worker - 1] is None:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - seen[worker - 1])
            version += 1
    return result


# %% one_for_each_event
# says: That is one for each event
# thinks: A pull has staleness 0.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
            result.append(0)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
    return result


# %% others_only
# says: A worker's own earlier push counts, too
# thinks: "other pushes" are pushes of other workers.
def staleness(history):
    result = []
    for i, (kind, worker) in enumerate(history):
        if kind == "push":
            start = max([j for j in range(i) if history[j] == ("pull", worker)], default=None)
            if start is None:
                raise ValueError(f"worker {worker} never pulled")
            result.append(sum(k == "push" and w != worker for k, w in history[start:i]))
    return result


# %% pull_comes_later
# says: A pull that comes later does not help
# thinks: A worker has pulled if there is a pull of it anywhere in the history.
def staleness(history):
    result, version, seen = [], 0, {}
    pullers = {worker for kind, worker in history if kind == "pull"}
    for kind, worker in history:
        if kind == "pull":
            seen[worker] = version
        else:
            if worker not in pullers:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - seen.get(worker, 0))
            version += 1
    return result


# %% pull_is_used_up
# says: It may push twice after one pull
# thinks: One pull, one push: after a push the weights have to be pulled again.
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


# %% pulls_between
# says: That counts what others pulled
# thinks: Weights grow older with each worker that takes them, so I count the pulls since this worker's own.
def staleness(history):
    result, seen, pulls = [], {}, 0
    for kind, worker in history:
        if kind == "pull":
            pulls += 1
            seen[worker] = pulls
        else:
            if worker not in seen:
                raise ValueError(f"worker {worker} never pulled")
            result.append(pulls - seen[worker])
    return result


# %% resets_at_push
# says: as if a push brought it new weights
# thinks: After a push the worker starts again from the new weights.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
            pulled[worker] = version
    return result


# %% unnamed_worker
# says: Who reads the error wants to know which worker it was
# thinks: a ValueError is asked, and here it is.
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


# %% workers_minus_one
# says: the number of workers minus 1
# thinks: The lesson says that staleness is p - 1.
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


# %% zero_is_false
# says: Is 0 taken for nothing?
# thinks: .get gives None where there is no pull, and None is false.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if not pulled.get(worker):
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker])
            version += 1
    return result
