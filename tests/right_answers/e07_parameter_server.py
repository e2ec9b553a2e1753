"""Unusual right answers to e07_parameter_server. What a cell holds is told in tests/answers.py."""

# %% answers_copies_later
# thinks: The server answers by Isend of a copy of the weights, which later updates cannot change, and waits for all
#   sends in the end.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast([weights, MPI.DOUBLE], root=0)
    order, sends = [], []
    buffer = np.zeros(weights.size)
    while order.count is not None and len(order) != steps * (comm.Get_size() - 1):
        status = MPI.Status()
        request = comm.Irecv([buffer, MPI.DOUBLE], MPI.ANY_SOURCE, 11)
        request.Wait(status)
        weights += -learning_rate * buffer
        sends.append(comm.Isend([weights.copy(), MPI.DOUBLE], status.Get_source(), 12))
        order += [status.Get_source()]
    MPI.Request.Waitall(sends)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights, 0)
    while steps:
        steps -= 1
        comm.Ssend(gradient(weights.copy()), 0, 11)
        comm.Recv(weights, 0, 12)


# %% asks_for_weights
# thinks: A worker asks for the first weights by a message whose last number is 0, so the server applies only those
#   that end in 1.
def serve(comm, weights, learning_rate, steps):
    n = len(weights)
    message, status, order = np.empty(n + 1), MPI.Status(), []
    for _ in range((comm.size - 1) * (steps + 1)):
        comm.Recv(message, status=status)
        worker = status.Get_source()
        if message[n]:
            weights -= learning_rate * message[:n]
            order.append(worker)
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    message = np.zeros(len(weights) + 1)
    comm.Sendrecv(message, 0, recvbuf=weights, source=0)
    for _ in range(steps):
        message[:-1], message[-1] = gradient(weights), 1
        comm.Sendrecv(message, 0, recvbuf=weights, source=0)


# %% dup_and_tuple
# thinks: All messages go over a duplicate of comm, and the order is a tuple, which holds the same ranks as a list
#   would.
def serve(comm, weights, learning_rate, steps):
    own = comm.Dup()
    own.Bcast(weights)
    order, status = (), MPI.Status()
    for _ in range((comm.size - 1) * steps):
        own.Recv(gradient := np.zeros_like(weights), status=status)
        weights -= gradient * learning_rate
        own.Send(weights, status.source)
        order += (status.source,)
    own.Free()
    return order


def work(comm, weights, gradient, steps):
    own = comm.Dup()
    own.Bcast(weights)
    for _ in range(steps):
        own.Sendrecv(gradient(weights), 0, recvbuf=weights, source=0)
    own.Free()


# %% irecv_and_waitany
# on: real ranks
# thinks: One receive is open for each worker that still has gradients to send, and Waitany takes whichever is done.
def serve(comm, weights, learning_rate, steps):
    workers = range(1, comm.size)
    for worker in workers:
        comm.Send(weights, worker)
    buffers = {w: np.empty_like(weights) for w in workers}
    requests = [comm.Irecv(buffers[w], w) for w in workers] if steps else []
    left = dict.fromkeys(workers, steps)
    order = []
    while any(left.values()):
        worker = 1 + MPI.Request.Waitany(requests)
        weights -= learning_rate * buffers[worker]
        order.append(worker)
        left[worker] -= 1
        if left[worker]:
            requests[worker - 1] = comm.Irecv(buffers[worker], worker)
        comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        request = comm.Isend(gradient(weights), 0)
        comm.Recv(weights, 0)
        request.Wait()


# %% irecv_of_objects
# on: real ranks
# thinks: Messages are pickled, and isend pickles the weights at once, so that later updates do not change an answer
#   under way.
def serve(comm, weights, learning_rate, steps):
    comm.bcast(weights)
    workers = range(1, comm.size)
    requests = [comm.irecv(bytearray(2**20), w) for w in workers] if steps else []
    order, answers = [], []
    for _ in range((comm.size - 1) * steps):
        i, gradient = MPI.Request.waitany(requests)
        weights -= learning_rate * gradient
        answers.append(comm.isend(weights, i + 1))
        order.append(i + 1)
        if order.count(i + 1) < steps:
            requests[i] = comm.irecv(bytearray(2**20), i + 1)
    MPI.Request.waitall(answers)
    return order


def work(comm, weights, gradient, steps):
    weights[:] = comm.bcast(None)
    for _ in range(steps):
        comm.send(gradient(weights), 0)
        weights[:] = comm.recv(source=0)


# %% null_requests
# on: real ranks
# thinks: Workers that are done have a null request, which Waitany passes over, and with nothing but these it says
#   UNDEFINED.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    buffers = np.empty((comm.size, len(weights)))
    requests = [MPI.REQUEST_NULL] * comm.size
    for w in range(1, comm.size):
        if steps:
            requests[w] = comm.Irecv(buffers[w], w)
    order = []
    status = MPI.Status()
    while True:
        i = MPI.Request.Waitany(requests, status)
        if i == MPI.UNDEFINED:
            break
        weights -= learning_rate * buffers[i]
        order.append(i)
        requests[i] = comm.Irecv(buffers[i], i) if order.count(i) < steps else MPI.REQUEST_NULL
        comm.Send(weights, i)
    MPI.Request.Waitall(requests)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% objects
# on: real ranks
# thinks: A worker pickles its rank along with its gradient, so the server needs no status to know whom to answer.
def serve(comm, weights, learning_rate, steps):
    comm.bcast(weights)
    order = []
    for _ in range(steps * (comm.size - 1)):
        worker, gradient = comm.recv()
        weights[:] = weights - learning_rate * gradient
        comm.send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    weights[:] = comm.bcast(None)
    for _ in range(steps):
        comm.send((comm.rank, gradient(weights)), 0)
        weights[:] = comm.recv(source=0)


# %% polls_in_turn
# thinks: The server asks in turn who has sent, but Iprobe does not wait, so a slow worker holds up nobody.
def serve(comm, weights, learning_rate, steps):
    for worker in range(1, comm.size):
        comm.Send(weights, worker)
    order, gradient = [], np.empty_like(weights)
    while len(order) < (comm.size - 1) * steps:
        for worker in range(1, comm.size):
            if comm.Iprobe(worker):
                comm.Recv(gradient, worker)
                for i in range(len(weights)):
                    weights[i] -= learning_rate * gradient[i]
                comm.Send(weights, worker)
                order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, 0)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        request = comm.Irecv(weights, 0)
        while not request.Test():
            pass


# %% probe_and_sendrecv
# thinks: Probe waits for whoever comes first and Recv then takes that worker's gradient, of which there is only one
#   at a time.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.Get_source()
        comm.Recv(gradient, worker)
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Sendrecv(gradient(weights), 0, recvbuf=weights, source=0)


# %% probe_then_receive
# thinks: Workers number their gradients by tag, and the server receives with the very source and tag that Probe has
#   found.
def serve(comm, weights, learning_rate, steps):
    for worker in range(1, comm.size):
        comm.Send(weights, worker, tag=7)
    order, status = [], MPI.Status()
    while len(order) < steps * (comm.size - 1):
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        gradient = np.empty_like(weights)
        comm.Recv(gradient, status.source, status.tag)
        np.subtract(weights, learning_rate * gradient, out=weights)
        comm.Send(weights, status.source, 7)
        order.append(status.source)
    return order


def work(comm, weights, gradient, steps):
    comm.Recv(weights, source=0, tag=7)
    for step in range(steps):
        comm.Send(gradient(weights), dest=0, tag=step)
        comm.Recv(weights, source=0, tag=7)


# %% probes_for_objects
# thinks: Gradients are pickled, and the probe's status tells whose it is, which recv without a status would not.
def serve(comm, weights, learning_rate, steps):
    comm.bcast(weights)
    order, status = [], MPI.Status()
    while len(order) < (comm.size - 1) * steps:
        comm.probe(status=status)
        gradient = comm.recv(source=status.Get_source(), tag=status.Get_tag())
        weights -= learning_rate * gradient
        comm.send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    weights[:] = comm.bcast(None)
    for _ in range(steps):
        comm.send(gradient(weights), 0)
        weights[:] = comm.recv(source=0)


# %% push_then_pull_of_one
# thinks: After a gradient the server waits for that worker's request of one byte, which is sent at once, with no
#   computing between.
def serve(comm, weights, learning_rate, steps):
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    comm.Bcast(weights)
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, 1, status)
        worker = status.Get_source()
        weights -= learning_rate * gradient
        order.append(worker)
        comm.Recv(bytearray(1), worker, 2)
        comm.Send(weights, worker, 3)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0, 1)
        comm.Send(bytes(1), 0, 2)
        comm.Recv(weights, 0, 3)


# %% queues_before_applying
# thinks: All gradients that have come are put in a queue first, but each is still applied and answered before the
#   next.
from collections import deque


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    queue, status, order = deque(), MPI.Status(), []
    while len(order) < (comm.size - 1) * steps:
        while not queue or comm.Iprobe(MPI.ANY_SOURCE):
            gradient = np.empty_like(weights)
            comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
            queue.append((status.Get_source(), gradient))
        worker, gradient = queue.popleft()
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% round_robin_with_memory
# thinks: The server goes on asking after the worker it asked last, and passes on at once where nothing has come.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order, worker = np.empty_like(weights), [], 0
    while len(order) < (comm.size - 1) * steps:
        worker = worker % (comm.size - 1) + 1
        if comm.Iprobe(worker):
            comm.Recv(gradient, worker)
            weights -= learning_rate * gradient
            comm.Send(weights, worker)
            order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Sendrecv(gradient(weights), 0, recvbuf=weights, source=0)


# %% says_goodbye
# thinks: Pickled messages, ready and gradient by tag, the worker says goodbye.
def serve(comm, weights, learning_rate, steps):
    HELLO, GRADIENT, BYE = 1, 2, 3
    working, order, status = comm.size - 1, [], MPI.Status()
    while working:
        message = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        tag, worker = status.Get_tag(), status.Get_source()
        if tag == BYE:
            working -= 1
            continue
        if tag == GRADIENT:
            np.subtract(weights, learning_rate * message, out=weights)
            order.append(worker)
        comm.send(weights, dest=worker)
    return order


def work(comm, weights, gradient, steps):
    HELLO, GRADIENT, BYE = 1, 2, 3
    comm.send(None, dest=0, tag=HELLO)
    weights[...] = comm.recv(source=0)
    for _ in range(steps):
        comm.send(gradient(weights), dest=0, tag=GRADIENT)
        weights[...] = comm.recv(source=0)
    comm.send(None, dest=0, tag=BYE)


# %% sendrecv
# thinks: The worker by Sendrecv; messages that carry their sender.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights, root=0)
    row, order = np.empty(len(weights) + 1), []
    for _ in range(steps * (comm.size - 1)):
        comm.Recv(row, source=MPI.ANY_SOURCE)
        order.append(int(row[0]))
        weights[:] = weights - learning_rate * row[1:]
        comm.Send(weights, dest=order[-1])
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights, root=0)
    for _ in range(steps):
        comm.Sendrecv(np.concatenate([[comm.rank], gradient(weights)]), dest=0, recvbuf=weights, source=0)


# %% testany
# thinks: Testany is called again and again in place of one Waitany, and takes a gradient as soon as one is there.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    buffers = np.empty((comm.size - 1, len(weights)))
    requests = [comm.Irecv(row, i + 1) for i, row in enumerate(buffers)] if steps else []
    order = []
    while len(order) < (comm.size - 1) * steps:
        i, done = MPI.Request.Testany(requests)
        if not done:
            continue
        weights -= learning_rate * buffers[i]
        order.append(i + 1)
        if order.count(i + 1) < steps:
            requests[i] = comm.Irecv(buffers[i], i + 1)
        comm.Send(weights, i + 1)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% tests_each_request
# thinks: The server tests each open receive in turn without waiting, and a worker that is done has none any more.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    buffers = np.empty((comm.size - 1, len(weights)))
    requests = {w: comm.Irecv(buffers[w - 1], w) for w in range(1, comm.size)} if steps else {}
    order = []
    while requests:
        for worker in list(requests):
            if not requests[worker].Test():
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


# %% two_receives_from_any
# thinks: Two receives from any source are open at a time, and messages match them in the order in which they were
#   posted.
def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    total = (comm.size - 1) * steps
    buffers, order, status = np.empty((2, len(weights))), [], MPI.Status()
    requests = [comm.Irecv(buffers[i % 2], MPI.ANY_SOURCE) for i in range(min(2, total))]
    for at in range(total):
        requests[at % 2].Wait(status)
        worker = status.Get_source()
        weights -= learning_rate * buffers[at % 2]
        if at + 2 < total:
            requests[at % 2] = comm.Irecv(buffers[at % 2], MPI.ANY_SOURCE)
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)


# %% waitsome_and_done
# thinks: Waitsome may bring several gradients at once, but each is applied and answered on its own, one after the
#   other.
def serve(comm, weights, learning_rate, steps):
    size = comm.size
    comm.Bcast(weights)
    buffers = np.empty((size, len(weights)))
    requests = [comm.Irecv(buffers[w], w) for w in range(1, size)] if steps else []
    left, order = [steps] * size, []
    while len(order) < steps * (size - 1):
        for worker in [i + 1 for i in MPI.Request.Waitsome(requests)]:
            weights -= learning_rate * buffers[worker]
            order.append(worker)
            left[worker] -= 1
            if left[worker]:
                requests[worker - 1] = comm.Irecv(buffers[worker], worker)
            comm.Send(weights, worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
