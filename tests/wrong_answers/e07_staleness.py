"""Wrong answers to e07_staleness. What a cell holds is told in tests/answers.py."""

# %% adds_the_workers
# says: Number the weights: version 0 before the first push
# thinks: Every worker that has pulled is one more that may change the weights.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker] + len(pulled) - 1)
            version += 1
    return result


# %% asserts
# says: An assert is for what cannot happen
# thinks: An assert says what must be true.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            assert worker in pulled, f"worker {worker} never pulled"
            result.append(version - pulled[worker])
            version += 1
    return result


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


# %% floats
# says: Staleness is a number of pushes: an int
# thinks: An age is a number like 2.0.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(float(version - pulled[worker]))
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


# %% largest_only
# says: That is one number, e.g. a mean or the largest
# thinks: How stale a training is, is its largest staleness.
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
    return max(result, default=0)


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


# %% leaves_out_the_first
# says: Was one left out, e.g. the first or the last
# thinks: The first push is never stale, so it need not be told.
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
    return result[1:]


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


# %% one_for_each_pull
# says: That is one for each pull
# thinks: What was pulled gets old: for each pull, how many pushes came before the next one of this worker.
def staleness(history):
    result, place = [], {}
    for kind, worker in history:
        if kind == "pull":
            place[worker] = len(result)
            result.append(0)
        elif worker not in place:
            raise ValueError(f"worker {worker} never pulled")
        else:
            for other, at in place.items():
                result[at] += other != worker
    return result


# %% one_for_each_worker
# says: That is one for each worker
# thinks: Each worker has its staleness, in the order in which they came.
def staleness(history):
    version, pulled, result = 0, {}, []
    last = {}
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            last[worker] = version - pulled[worker]
            version += 1
    return list(last.values())


# %% one_less
# says: One too few: nothing is subtracted
# thinks: "Other pushes" leaves out the push itself, so I subtract one.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - pulled[worker] - 1)
            version += 1
    return result


# %% one_less_but_not_negative
# says: One too few, and never below 0
# thinks: The push itself does not count, and there is no negative age.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(max(0, version - pulled[worker] - 1))
            version += 1
    return result


# %% other_sign
# says: That has the other sign
# thinks: What is old has a smaller number: pulled minus current.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(pulled[worker] - version)
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


# %% own_pushes
# says: That is how often the worker itself pushed
# thinks: A worker gets older with each of its pushes.
def staleness(history):
    version, pulled, result = 0, {}, []
    own = {}
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(own.get(worker, 0))
            own[worker] = own.get(worker, 0) + 1
            version += 1
    return result


# %% own_pushes_since_the_pull
# says: That counts this worker's pushes only
# thinks: Only what the worker itself has pushed since its pull makes its weights old.
def staleness(history):
    version, pulled, result = 0, {}, []
    own = {}
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
            own[worker] = 0
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(own[worker])
            own[worker] += 1
            version += 1
    return result


# %% pairs
# says: not pairs, and no lists by worker
# thinks: Who reads the result wants to know whose push it was.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append((worker, version - pulled[worker]))
            version += 1
    return result


# %% prints
# says: Nothing came back: is the list returned?
# thinks: The result is shown.
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
    print(result)


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


# %% since_its_previous_push
# says: That counts from the worker's previous push, or from the beginning
# thinks: A gradient is as old as the last update by its worker.
def staleness(history):
    version, pulled, result = 0, {}, []
    last = {}
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version - last.get(worker, 0))
            last[worker] = version + 1
            version += 1
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


# %% version_at_the_push
# says: the version of the weights. Subtract the version
# thinks: Staleness is how many updates there were.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(version)
            version += 1
    return result


# %% version_that_was_pulled
# says: That is the version that the worker pulled
# thinks: The staleness of a gradient is the version of its weights.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(pulled[worker])
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


# %% yields
# says: runs through a generator and keeps what it yields
# thinks: A generator is a list that is made when it is needed.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            yield version - pulled[worker]
            version += 1


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


# %% zeros
# says: That is 0 for all
# thinks: Every worker pushes what belongs to the weights that it has.
def staleness(history):
    version, pulled, result = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            pulled[worker] = version
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(0)
            version += 1
    return result
