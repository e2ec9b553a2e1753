"""Wrong answers to e07_parameter_server. What a cell holds is told in tests/answers.py."""

# %% added
# says: The gradient is added
# thinks: An update adds the gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights += learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% all_as_often
# says: until all have been served as often
# thinks: It is fair to serve every worker once in each round, in the order in which they come.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    order, buffers = [], {w: np.empty_like(weights) for w in range(1, comm.size)}
    for _ in range(steps):
        requests = {w: comm.Irecv(buffers[w], w) for w in buffers}
        waiting = list(requests)
        while waiting:
            i = MPI.Request.Waitany([requests[w] for w in waiting])
            worker = waiting.pop(i)
            weights -= learning_rate * buffers[worker]
            comm.Send(weights, worker)
            order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% announces_itself
# says: sent ahead of its gradient
# thinks: A worker says who it is, and then computes.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    for _ in range((comm.size - 1) * steps):
        worker = comm.recv(source=MPI.ANY_SOURCE, tag=1)
        comm.Recv(gradient, worker, tag=2)
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.send(comm.rank, 0, tag=1)
        comm.Send(gradient(weights), 0, tag=2)
        comm.Recv(weights, 0)


# %% answer_never_read
# says: Those are older weights
# thinks: recv brings the new weights.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.recv(source=0)


# %% answers_before_applying
# says: The answer is sent before the gradient is applied
# thinks: First let the worker go on, then do the sums.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        comm.Send(weights, status.Get_source())
        weights -= learning_rate * gradient
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% answers_by_bcast
# says: An answer concerns one worker alone
# thinks: New weights are for all, and Bcast is how the server tells all.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        order.append(status.Get_source())
        comm.Bcast(weights)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Bcast(weights)


# %% answers_everybody
# says: An answer goes only to the worker
# thinks: All workers should have the newest weights.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        for worker in range(1, comm.size):
            comm.Send(weights, worker)
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% answers_the_difference
# says: The worker changes the weights itself, too
# thinks: The update is all that is new, so the server sends that and the worker adds it to its weights.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        update = -learning_rate * gradient
        weights += update
        comm.Send(update, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    update = np.empty_like(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(update, 0)
        weights += update


# %% bcast_by_the_server_alone
# says: is a collective call
# thinks: Bcast sends, and Recv receives.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% both_are_sent
# says: what else is sent, or is it sent twice?
# thinks: The server needs to know where the gradient was computed.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    message, status, order = np.empty((2, len(weights))), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(message, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * message[1]
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(np.stack([weights, gradient(weights)]), 0)
        comm.Recv(weights, 0)


# %% buffer_added_to
# says: and never emptied
# thinks: Gradients add up.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    total = np.zeros_like(weights)
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        total += gradient
        weights -= learning_rate * total
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% collects_gradients
# says: Gradients are collected, and then applied together
# thinks: An update needs a gradient of each worker.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    total = np.zeros_like(weights)
    for i in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        total += gradient
        if i % (comm.size - 1) == comm.size - 2:
            weights -= learning_rate * total
            total[:] = 0
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% drains
# says: applies one, answers that worker
# thinks: When several gradients are there, apply them all at once: that is faster.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    while len(order) < (comm.size - 1) * steps:
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        workers = [status.Get_source()]
        while comm.Iprobe(MPI.ANY_SOURCE, status=status):
            comm.Recv(gradient, status.Get_source())
            weights -= learning_rate * gradient
            workers.append(status.Get_source())
        for worker in workers:
            comm.Send(weights, worker)
        order += workers
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% drops_stale
# says: None is dropped, however old it is
# thinks: A gradient that is more than two updates old does more harm than good, so it is left out.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    given, version = dict.fromkeys(range(1, comm.size), 0), 0
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        if version - given[worker] <= 2:
            weights -= learning_rate * gradient
            order.append(worker)
            version += 1
        given[worker] = version
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% each_worker_once
# says: Each worker is in it once
# thinks: The ranks that were served are asked.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return list(dict.fromkeys(order))


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% gathers_each_step
# says: In a collective call
# thinks: Gather brings all gradients at once.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradients, order = np.empty((comm.size, len(weights))), []
    for _ in range(steps):
        comm.Gather(np.zeros_like(weights), gradients)
        for worker in range(1, comm.size):
            weights -= learning_rate * gradients[worker]
            comm.Send(weights, worker)
            order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Gather(gradient(weights), None)
        comm.Recv(weights, 0)


# %% gradient_twice
# says: keeps it in a variable
# thinks: gradient(weights) is the gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        print(gradient(weights).sum())
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% highest_rank_first
# says: Then others starve
# thinks: Whoever is found first came first.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    while len(order) < (comm.size - 1) * steps:
        for worker in reversed(range(1, comm.size)):
            if comm.Iprobe(worker):
                comm.Recv(gradient, worker)
                weights -= learning_rate * gradient
                comm.Send(weights, worker)
                order.append(worker)
                break
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Sendrecv(gradient(weights), 0, recvbuf=weights, source=0)


# %% in_turn
# says: does it receive from one rank after the other?
# thinks: Each worker gets its turn, so that it is fair.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    for _ in range(steps):
        for worker in range(1, comm.size):
            comm.Recv(gradient, worker)
            weights -= learning_rate * gradient
            comm.Send(weights, worker)
            order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% isend_changes_weights
# says: its buffer was changed
# thinks: The requests can be waited for in the end.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    requests = []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        requests.append(comm.Isend(weights, status.Get_source()))
        order.append(status.Get_source())
    MPI.Request.Waitall(requests)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% isend_without_wait
# says: Isend and Irecv only begin
# thinks: Isend saves waiting.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Isend(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% last_answer_not_sent
# says: without the answer to rank
# thinks: Whoever is done needs no more weights.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        order.append(status.Get_source())
        if order.count(status.Get_source()) < steps:
            comm.Send(weights, status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% last_answer_not_taken
# says: without taking the answer to its last gradient
# thinks: After the last gradient there is nothing to compute any more.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for step in range(steps):
        comm.Send(gradient(weights), 0)
        if step < steps - 1:
            comm.Recv(weights, 0)


# %% lowest_rank_first
# says: Then others starve
# thinks: Whoever is found first came first.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    while len(order) < (comm.size - 1) * steps:
        for worker in range(1, comm.size):
            if comm.Iprobe(worker):
                comm.Recv(gradient, worker)
                weights -= learning_rate * gradient
                comm.Send(weights, worker)
                order.append(worker)
                break
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% mean_over_workers
# says: Each gradient is divided by the number of workers
# thinks: Gradients of several workers are averaged.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient / (comm.size - 1)
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% mixes_old_and_new
# says: or the worker change what came
# thinks: Halfway between old weights and new ones is smoother for a worker than a jump to the new ones.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    new = np.empty_like(weights)
    for _ in range(steps):
        g = gradient(weights)
        comm.Send(g, 0)
        comm.Recv(new, 0)
        weights[:] = (weights + new) / 2


# %% name_for_what_came
# says: gives a name to another object
# thinks: Weights is the variable for the weights.
def serve(comm, weights, learning_rate, steps):
    comm.bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        gradient = comm.recv(source=MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    weights = comm.bcast(None)
    for _ in range(steps):
        comm.send(gradient(weights), 0)
        weights = comm.recv(source=0)


# %% never_answers
# says: each gradient is answered before another one is taken
# thinks: The weights are sent when all is done.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        order.append(status.Get_source())
    for worker in range(1, comm.size):
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% never_updated
# says: Where does the updated array go?
# thinks: I must not change the argument.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        new = weights - learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% new_array
# says: weights = weights - ... makes a new array
# thinks: -= and = ... - are the same.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights = weights - learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% new_weights_to_all_in_the_end
# says: The server sends rank
# thinks: In the end all workers get the trained model.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    for worker in range(1, comm.size):
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% newest_first
# says: or with the newest
# thinks: What is on top of the list is next.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    stack, status, order = [], MPI.Status(), []
    while len(order) < (comm.size - 1) * steps:
        while not stack or comm.Iprobe(MPI.ANY_SOURCE):
            gradient = np.empty_like(weights)
            comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
            stack.append((status.Get_source(), gradient))
        worker, gradient = stack.pop()
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% no_answer_in_the_end
# says: The answer to its last gradient is missing
# thinks: A worker that has sent its last gradient computes no more, so both sides can save the last answer.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        weights -= learning_rate * gradient
        order.append(worker)
        if order.count(worker) < steps:
            comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for step in range(steps):
        comm.Send(gradient(weights), 0)
        if step < steps - 1:
            comm.Recv(weights, 0)


# %% no_first_weights
# says: workers wait for their first weights
# thinks: The server only ever answers.
def serve(comm, weights, learning_rate, steps):
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% no_learning_rate
# says: The learning rate is missing
# thinks: The worker's gradient is scaled already.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% no_list
# says: Is the list returned?
# thinks: The server is done when it is done.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% nobody_gives_first_weights
# says: Nothing was received into it
# thinks: All ranks begin with the same weights anyway.
def serve(comm, weights, learning_rate, steps):
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% one_buffer_for_all
# says: which rank 0's Irecv
# thinks: A buffer is empty again once I have used it.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    workers = range(1, comm.size)
    gradient, order = np.empty_like(weights), []
    requests = [comm.Irecv(gradient, w) for w in workers]
    while len(order) < len(workers) * steps:
        i = MPI.Request.Waitany(requests)
        weights -= learning_rate * gradient
        comm.Send(weights, i + 1)
        order.append(i + 1)
        if order.count(i + 1) < steps:
            requests[i] = comm.Irecv(gradient, i + 1)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% one_round_less
# says: `steps` rounds
# thinks: The first weights count as a step.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * (steps - 1)):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps - 1):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% one_status_too_late
# says: of that very receive
# thinks: I look at the status when I need it, after the next gradient is safely here.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    total = (comm.size - 1) * steps
    buffers = [np.empty_like(weights) for _ in range(total)]
    status, order = MPI.Status(), []
    for i in range(total):
        comm.Recv(buffers[i], MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * buffers[i]
        worker = i % (comm.size - 1) + 1
        comm.Send(weights, worker)
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% one_too_many
# says: it takes (comm.size - 1) * steps gradients in all
# thinks: Every rank sends steps gradients.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range(comm.size * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% one_worker_after_the_other
# says: The first weights go to all workers before
# thinks: First serve one worker, then the next one.
def serve(comm, weights, learning_rate, steps):
    gradient, order = np.empty_like(weights), []
    for worker in range(1, comm.size):
        comm.Send(weights, worker)
        for _ in range(steps):
            comm.Recv(gradient, worker)
            weights -= learning_rate * gradient
            comm.Send(weights, worker)
            order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% push_and_pull
# says: applied before the answer
# thinks: Push and pull are two requests, each served when it comes.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range(2 * (comm.size - 1) * steps):
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.Get_source()
        if status.Get_tag() == 1:
            comm.Recv(gradient, worker, 1)
            weights -= learning_rate * gradient
            order.append(worker)
        else:
            comm.recv(source=worker, tag=2)
            comm.Send(weights, worker, 3)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0, 1)
        comm.send(None, 0, 2)
        comm.Recv(weights, 0, 3)


# %% received_into_weights
# says: It needs a buffer of its own
# thinks: The message is put where weights are, and then used.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(weights, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * weights
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% receives_from_another
# says: of that very receive
# thinks: Probe counts the workers from 0, so its number has to be turned into a rank from 1 to comm.size - 1.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.Get_source()
        comm.Recv(gradient, (worker % (comm.size - 1)) + 1)
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% recv_returns_none
# says: fills the array that it is given and returns nothing
# thinks: Recv returns what it received.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        weights = comm.Recv(weights, 0)


# %% reduce_and_bcast
# says: In a collective call
# thinks: Summing gradients is what Reduce is for.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    total, order = np.zeros_like(weights), []
    for _ in range(steps):
        total[:] = 0
        comm.Reduce(MPI.IN_PLACE, total)
        weights -= learning_rate * total
        comm.Bcast(weights)
        order += range(1, comm.size)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Reduce(gradient(weights), None)
        comm.Bcast(weights)


# %% scaled_by_age
# says: does the server scale some
# thinks: An old gradient is worth less, so its step is divided by its age.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    given = dict.fromkeys(range(1, comm.size), 0)
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        age = len(order) - given[worker]
        weights -= learning_rate / (1 + age) * gradient
        order.append(worker)
        given[worker] = len(order)
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% sends_gradient_back
# says: numbers of its own gradient
# thinks: The server hands the update on.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(gradient, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% sends_weights
# says: The worker sends its weights
# thinks: Weights go to and fro.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        gradient(weights)
        comm.Send(weights, 0)
        comm.Recv(weights, 0)


# %% server_in_the_loop
# says: itself
# thinks: The first weights go to every rank.
def serve(comm, weights, learning_rate, steps):
    for rank in range(comm.size):
        comm.Send(weights, rank)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% single_precision
# says: so both must be of one datatype
# thinks: Half the bytes do.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights).astype('f4'), 0)
        comm.Recv(weights, 0)


# %% skips_first_if_zero
# says: Where steps is 0
# thinks: Without steps there is nothing to do.
def serve(comm, weights, learning_rate, steps):
    if steps: comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    if steps: comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% sorted_list
# says: Is the list sorted
# thinks: A list of ranks is sorted.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return sorted(order)


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% stale_by_one
# says: Those are older weights
# thinks: While the message is under way, the next gradient can be computed.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    own = gradient(weights) if steps else None
    for step in range(steps):
        request = comm.Isend(own, 0)
        following = gradient(weights) if step < steps - 1 else None
        comm.Recv(weights, 0)
        request.Wait()
        own = following


# %% status_never_given
# says: A Status tells who sent
# thinks: a Status knows the last message.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% steps_in_all
# says: the server takes (comm.size - 1) * steps gradients in all
# thinks: Steps is the number of updates.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range(steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% stops_when_one_is_done
# says: the server takes (comm.size - 1) * steps gradients in all
# thinks: All workers send equally many gradients, so when one of them has sent all of its own, all have.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    while steps and (not order or max(order.count(w) for w in order) < steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% tags_differ
# says: a receive takes its own tag only
# thinks: Tag 1 is for gradients, and tag 2 for weights; or the other way round.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, 2, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0, 1)
        comm.Recv(weights, 0)


# %% tests_from_the_first_again
# says: Then others starve
# thinks: Test of one request after the other finds the first that is done.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    buffers = np.empty((comm.size - 1, len(weights)))
    requests = {w: comm.Irecv(buffers[w - 1], w) for w in range(1, comm.size)} if steps else {}
    order = []
    while requests:
        worker = next((w for w in requests if requests[w].Test()), None)
        if worker is None:
            continue
        weights -= learning_rate * buffers[worker - 1]
        order.append(worker)
        if order.count(worker) < steps:
            requests[worker] = comm.Irecv(buffers[worker - 1], worker)
        else:
            del requests[worker]
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% two_messages
# says: of that very receive
# thinks: Any source will do, the message is there.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        r = np.empty(1)
        comm.Recv(r, MPI.ANY_SOURCE, status=status)
        comm.Recv(gradient, MPI.ANY_SOURCE)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        g = gradient(weights)
        comm.Send(np.ones(1), 0)
        comm.Send(g, 0)
        comm.Recv(weights, 0)


# %% waits_for_all
# says: That is synchronous
# thinks: A step is one gradient of each worker.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range(steps):
        workers = []
        for _ in range(comm.size - 1):
            comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
            weights -= learning_rate * gradient
            workers.append(status.Get_source())
        for worker in workers:
            comm.Send(weights, worker)
        order += workers
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% waits_in_the_end
# says: after that a worker waits for nobody
# thinks: All ranks finish together.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    comm.Barrier()
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
    comm.Barrier()


# %% waitsome_batch
# says: applies one, answers that worker
# thinks: Waitsome hands over a batch, and a batch is one update.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    buffers = np.empty((comm.size - 1, len(weights)))
    requests = [comm.Irecv(row, i + 1) for i, row in enumerate(buffers)] if steps else []
    order = []
    while len(order) < (comm.size - 1) * steps:
        done = MPI.Request.Waitsome(requests)
        for i in done:
            weights -= learning_rate * buffers[i]
            order.append(i + 1)
            if order.count(i + 1) < steps:
                requests[i] = comm.Irecv(buffers[i], i + 1)
        for i in done:
            comm.Send(weights, i + 1)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% weights_at_the_gradient
# says: what others changed meanwhile is lost
# thinks: A worker's gradient belongs to the worker's weights.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    held = {w: weights.copy() for w in range(1, comm.size)}
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        held[worker] -= learning_rate * gradient
        weights[:] = held[worker]
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% work_returns_new
# says: gives a name to another object
# thinks: The array that I am given may hold anything, so I make a new one.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    weights = np.empty_like(weights)
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
    return weights


# %% worker_updates_too
# says: The worker changes the weights itself, too
# thinks: The worker learns, too.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        own = gradient(weights)
        comm.Send(own, 0)
        comm.Recv(weights, 0)
        weights -= own


# %% workers_from_zero
# says: Are workers counted from 0?
# thinks: Worker 0 is the first worker.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source() - 1)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% world
# says: Use the `comm` that is given
# on: real ranks
# thinks: COMM_WORLD is the communicator.
def serve(comm, weights, learning_rate, steps):
    MPI.COMM_WORLD.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((MPI.COMM_WORLD.size - 1) * steps):
        MPI.COMM_WORLD.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        MPI.COMM_WORLD.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    MPI.COMM_WORLD.Bcast(weights)
    for _ in range(steps):
        MPI.COMM_WORLD.Send(gradient(weights), 0)
        MPI.COMM_WORLD.Recv(weights, 0)


# %% two_sources
# says: A gradient was taken for another worker's
# thinks: The rank comes first, then its gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    for _ in range((comm.size - 1) * steps):
        worker = comm.recv(source=MPI.ANY_SOURCE, tag=1)
        comm.Recv(gradient, MPI.ANY_SOURCE, tag=2)
        weights -= learning_rate * gradient
        comm.Send(weights, worker, tag=3)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        g = gradient(weights)
        comm.send(comm.rank, 0, tag=1)
        comm.Send(g, 0, tag=2)
        comm.Recv(weights, 0, tag=3)


# %% two_sources_isend
# says: A gradient was taken for another worker's
# thinks: The rank comes first, then its gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    number = np.empty(1, dtype=np.int64)
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, tag=2)
        comm.Recv(number, MPI.ANY_SOURCE, tag=1)
        worker = int(number[0])
        weights -= learning_rate * gradient
        comm.Send(weights, worker, tag=3)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        g = gradient(weights)
        a = comm.Isend(np.array([comm.rank]), 0, tag=1)
        b = comm.Isend(g, 0, tag=2)
        comm.Recv(weights, 0, tag=3)
        a.Wait()
        b.Wait()


# %% status_of_probe_other_recv
# says: A gradient was taken for another worker's
# thinks: Probe says who, then I take any.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    status = MPI.Status()
    for _ in range((comm.size - 1) * steps):
        worker = comm.recv(source=MPI.ANY_SOURCE, tag=1)
        gradient[:] = comm.recv(source=MPI.ANY_SOURCE, tag=2)
        weights -= learning_rate * gradient
        comm.Send(weights, worker, tag=3)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        g = gradient(weights)
        a = comm.isend(comm.rank, 0, tag=1)
        b = comm.isend(g, 0, tag=2)
        comm.Recv(weights, 0, tag=3)
        a.wait()
        b.wait()


# %% staleness_returned
# says: rank 0 is the server, and sends none
# thinks: Lesson 07 asks how old each gradient is.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights, root=0)
    row = np.empty_like(weights)
    status = MPI.Status()
    staleness, answered, updates = [], {}, 0
    for _ in range((comm.size - 1) * steps):
        comm.Recv(row, source=MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        staleness.append(updates - answered.get(worker, 0))
        weights -= learning_rate * row
        updates += 1
        answered[worker] = updates
        comm.Send(weights, dest=worker)
    return staleness


def work(comm, weights, gradient, steps):
    comm.Bcast(weights, root=0)
    for _ in range(steps):
        comm.Send(gradient(weights), dest=0)
        comm.Recv(weights, source=0)


# %% drains_the_queue_first
# says: even then it applies one
# thinks: If several gradients are there already, one update with all of them is cheaper.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights, root=0)
    row = np.empty_like(weights)
    status = MPI.Status()
    order = []
    while len(order) < (comm.size - 1) * steps:
        batch = []
        while not batch or comm.Iprobe(source=MPI.ANY_SOURCE):
            comm.Recv(row, source=MPI.ANY_SOURCE, status=status)
            weights -= learning_rate * row
            batch.append(status.Get_source())
        for worker in batch:
            comm.Send(weights, dest=worker)
        order += batch
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights, root=0)
    for _ in range(steps):
        comm.Send(gradient(weights), dest=0)
        comm.Recv(weights, source=0)


# %% one_gradient_sent_again
# says: one gradient sent again and again
# thinks: The data are the same, so the gradient is.
def serve(comm, weights, learning_rate, steps):
    for rank in range(1, comm.size):
        comm.Send(weights, rank)
    order, gradient, status = [], np.empty_like(weights), MPI.Status()
    for _ in range(steps * (comm.size - 1)):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        order.append(status.Get_source())
        comm.Send(weights, order[-1])
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    once = gradient(weights) if steps else None
    for _ in range(steps):
        comm.Send(once, 0)
        comm.Recv(weights, 0)


# %% adds_without_a_rate
# says: The learning rate is missing, and the gradient is added
# thinks: Gradients are what weights change by.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights += gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% rate_twice
# says: The learning rate is in it twice
# thinks: The step is the rate times the gradient, and the update is the rate times the step.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        step = learning_rate * gradient
        weights -= learning_rate * step
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% over_all_ranks
# says: Each gradient is divided by comm.size
# thinks: comm.size ranks make one mean.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient / comm.size
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% over_all_steps
# says: Each gradient is divided by steps
# thinks: A worker has one share of the update for each of its steps.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient / steps
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% collects_a_mean
# says: Gradients are collected, and then their mean is applied
# thinks: An update is the mean over workers.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    kept = []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        kept.append(gradient.copy())
        if len(kept) == comm.size - 1:
            weights -= learning_rate * np.mean(kept, axis=0)
            kept = []
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% server_takes_updated_weights
# says: The worker applies its gradient, and the server takes over its weights
# thinks: Who has the gradient applies it.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights[:] = gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(weights - gradient(weights), 0)
        comm.Recv(weights, 0)


# %% always_from_the_first
# says: Each update begins again from the first weights
# thinks: Gradients are taken at the weights that all have begun with.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    first = weights.copy()
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights[:] = first - learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% gradient_for_weights
# says: The gradient takes the place of the weights
# thinks: What comes from a worker is the new model.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights[:] = gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% step_for_weights
# says: Weights are set to the step alone: -= takes it off, = does not
# thinks: The new weights are the learning rate times the gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights[:] = learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% negative_step_for_weights
# says: Weights are set to the step alone: -= takes it off what they were
# thinks: Downhill is minus the gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights[:] = -learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% decays_weights
# says: By these gradients the server never has such weights
# thinks: Weights that are not needed decay.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights *= 0.9
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% last_one_is_not_kept
# says: Each gradient is applied before its answer is sent, the last ones too
# thinks: Nobody asks the server after the last gradient.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for i in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        new = weights - learning_rate * gradient
        if i < (comm.size - 1) * steps - 1:
            weights[:] = new
        comm.Send(new, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% mean_in_the_end
# says: Do workers send all of the gradient, and is each of them applied once
# thinks: The mean of the first and the last model is better than the last.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    first = weights.copy()
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    weights[:] = (weights + first) / 2
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% worker_rounds_in_the_end
# says: and a worker changes nothing in it
# thinks: A worker keeps its model with three digits.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
    weights[:] = np.round(weights, 3)


# %% gradient_of_a_part
# says: A gradient is computed at weights: all of them
# thinks: A worker is responsible for the first half of the model.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights[: len(weights) // 2]), 0)
        comm.Recv(weights, 0)


# %% one_more_gradient
# says: One round too many, or one more gradient
# thinks: After the last answer a worker looks how good it is.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
    gradient(weights)


# %% dictionary_of_counts
# says: Return a list of ints: who sent the first gradient
# thinks: It is asked who sent how many.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return {rank: order.count(rank) for rank in order}


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% names_of_ranks
# says: The ranks are asked as ints
# thinks: A list is read by people.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(f"rank {status.Get_source()}")
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% appends_any_source
# says: A negative number is MPI.ANY_SOURCE
# thinks: The source of the message is the one that Recv was given.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(MPI.ANY_SOURCE)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% last_status_for_all
# says: A Status tells of the receive that it was given last
# thinks: One status has seen all messages.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return [status.Get_source() for _ in order]


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% workers_greet_each_other
# says: A worker talks to the server only
# thinks: Workers have to know that all others are there.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    right, left = 1 + comm.rank % (comm.size - 1), 1 + (comm.rank - 2) % (comm.size - 1)
    comm.sendrecv("here", dest=right, source=left)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% rest_of_the_pieces_left_out
# says: It is right on virtual ranks, with arrays of up to 4000 numbers
# on: real ranks
# thinks: A long array goes in pieces of 8192 numbers: len(x) // 8192 of them, or one.
def pieces(x):
    return [x[8192 * i : 8192 * (i + 1)] for i in range(max(1, len(x) // 8192))]


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.zeros_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        first, *others = pieces(gradient)
        comm.Recv(first, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        for piece in others:
            comm.Recv(piece, worker)
        weights -= learning_rate * gradient
        for piece in pieces(weights):
            comm.Send(piece, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        for piece in pieces(gradient(weights)):
            comm.Send(piece, 0)
        for piece in pieces(weights):
            comm.Recv(piece, 0)


# %% answers_in_turn
# says: The server was sending to rank 1, which was busy and not receiving
# thinks: Each worker gets as many answers as it sends gradients, so the server answers one worker after the other.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for i in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, 1 + i % (comm.size - 1))
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        request = comm.Isend(gradient(weights), 0)
        comm.Recv(weights, 0)
        request.Wait()


# %% last_worker_without_first_weights
# says: Rank 2 waits for its first weights: every worker gets them before gradients are taken
# thinks: The workers are ranks 1 to comm.size - 1, so that is where the range ends.
def serve(comm, weights, learning_rate, steps):
    for worker in range(1, comm.size - 1):
        comm.Send(weights, worker)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% nothing_to_serve
# says: waits for its first weights: they go to every worker, first
# thinks: Where no gradient will come there is nothing to do.
def serve(comm, weights, learning_rate, steps):
    if steps == 0:
        return []
    for worker in range(1, comm.size):
        comm.Send(weights, worker)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% steps_in_all_to_senders_that_do_not_wait
# says: The server has returned without an answer to rank 1's gradient number
# thinks: steps is how many gradients the server takes.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range(steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        request = comm.Isend(gradient(weights), 0)
        comm.Recv(weights, 0)
        request.Wait()
