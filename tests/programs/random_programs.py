"""Random MPI programs, as source: `source(seed, size)` is right on any MPI, `hanging(seed, size)` never ends.

`mpirun -np 3 python random_programs.py FIRST COUNT` runs COUNT of them, seeds FIRST on, and prints on rank 0 what each
rank of each found; `... hang SEED` runs one that hangs. Every value is a small integer, whatever its dtype, so that
sums are the same bits in any order.
"""

import json
import random
import sys

import numpy as np

# -- what programs call --


def v(k, n, dtype):
    """Return n small integers of a dtype, which differ for another k."""
    return ((k * 7 + 3 * np.arange(n)) % 3).astype(dtype)


def thing(k):
    """Make an object."""
    return [k, f"text {k}", (k, None, 2.5), {"k": k, "list": [k] * (k % 4)}, b"bytes" * (k % 3), v(k, k % 5, "f4")][
        k % 6
    ]


def told(x):
    """Return what can be compared: the bits of an array, and what an object prints."""
    if isinstance(x, np.ndarray):
        return [x.dtype.str, x.tobytes().hex()]
    if isinstance(x, list | tuple):
        return [told(each) for each in x]
    return repr(x)


def until(ask):
    """Ask until it is so."""
    while not ask():
        pass


def by_any(MPI, requests):
    """Wait for one after the other, as they come."""
    return sorted(MPI.Request.Waitany(requests) for _ in requests)


def probed(MPI, comm, waits):
    """Receive what a probe has found."""
    status = MPI.Status()
    if waits:
        comm.probe(status=status)
    else:
        until(lambda: comm.iprobe(status=status))
    return comm.recv(source=status.source, tag=status.tag)


def by_some(name, requests):
    """Do the same by Waitsome or Testsome."""
    done = []
    while len(done) < len(requests):
        done += getattr(type(requests[0]), name)(requests) or []
    return sorted(done)


def plus_twice(a, b, datatype):
    """Make an operation of a program's own."""
    x, y = np.frombuffer(a, np.int64), np.frombuffer(b, np.int64)
    y[:] = x + y + 1


# -- programs --

NUMBERS = "bBhHiIlLqQfd"
DTYPES = NUMBERS + "?FD"
OPS = {"SUM": "iufc", "PROD": "iufc", "MAX": "iuf", "MIN": "iuf", "LAND": "biu", "LOR": "biu", "LXOR": "biu",
       "BAND": "iu", "BOR": "iu", "BXOR": "iu"}  # fmt: skip


class Program:
    """Being written: lines for each rank of the world. comms: name and members, in the order of their ranks."""

    def __init__(self, seed, size):
        self.draw, self.size = random.Random(seed), size
        self.lines = [[] for _ in range(size)]
        self.comms = [("c0", list(range(size)))]
        self.count = 0  # of names that were given, and of tags

    def name(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def say(self, rank, text):
        self.lines[rank].append(text)

    def text(self):
        """Its source: a function for each rank."""
        found = []
        for rank, lines in enumerate(self.lines):
            found += [f"def rank{rank}(c0, MPI, out):", *[f"    {line}" for line in lines], "    return", ""]
        return "\n".join(found)

    def line_of(self, rank):
        """Return the number of the line that was said last to a rank, in the text as it is then."""
        return sum(len(lines) + 3 for lines in self.lines[:rank]) + 1 + len(self.lines[rank])


def source(seed, size):
    """Make a correct program: it has the same results on any MPI, whatever is buffered."""
    p = Program(seed, size)
    for _ in range(p.draw.randrange(3, 8)):
        p.draw.choice(PARTS)(p)
    return p.text()


def at_once(p):
    """Receives that are begun first, sends of all kinds, and all ways to wait."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    base, n = 10 * p.count + 10, len(members)
    messages = [(draw.randrange(n), draw.randrange(n), draw.randrange(3)) for _ in range(draw.randrange(1, 9))]
    objects, wild = draw.random() < 0.4, {me: draw.random() < 0.3 for me in range(n)}
    p.name("t")
    for me, rank in enumerate(members):
        buffers, requests, statuses = [], [], p.name("s")
        for source, dest, tag in sorted(messages, key=lambda m: m[2]):
            if dest != me:
                continue
            # From anybody: a tag for each sender, so that it is certain who is first.
            say = f"MPI.ANY_SOURCE, {base + 3 * source + tag}" if wild[me] else f"{source}, {base + 3 * source + tag}"
            q, y = p.name("q"), p.name("y")
            k, dtype = kind_of(source, dest, tag)
            if objects:
                p.say(rank, f"{q} = {comm}.irecv(None, {say})")
            else:
                p.say(rank, f"{y} = np.zeros({k % 5 + 2}, '{dtype}')")
                p.say(rank, f"{q} = {comm}.Irecv({y}, {say})")
                buffers.append(y)
            requests.append(q)
        receives = len(requests)
        for source, dest, tag in messages:
            if source != me:
                continue
            q, x, to = p.name("q"), p.name("x"), f"{dest}, {base + 3 * source + tag}"
            k, dtype = kind_of(source, dest, tag)
            how = draw.choice(["isend", "issend"] if objects else ["Isend", "Issend"])
            if objects:
                p.say(rank, f"{q} = {comm}.{how}(thing({k}), {to})")
            else:
                p.say(rank, f"{x} = v({k}, {k % 5}, '{dtype}')")
                p.say(rank, f"{q} = {comm}.{how}({x}, {to})")
            requests.append(q)
        if not requests:
            continue
        p.say(rank, f"{statuses} = []")
        names = ", ".join(requests)
        if objects:
            p.say(rank, draw.choice([
                f"out(MPI.Request.waitall([{names}])[:{receives}])",
                f"out([q.wait() for q in [{names}]][:{receives}])",
            ]))  # fmt: skip
        else:
            p.say(rank, draw.choice([
                f"MPI.Request.Waitall([{names}], {statuses})",
                f"for q in [{names}]: q.Wait()",
                f"for q in [{names}]: until(q.Test)",
                f"until(lambda: MPI.Request.Testall([{names}]))",
                f"out(by_any(MPI, [{names}]))",
                f"out(by_some('Waitsome', [{names}]))",
                f"out(by_some('Testsome', [{names}]))",
            ]))  # fmt: skip
            for y in buffers:
                p.say(rank, f"out({y})")
            p.say(rank, f"out([(s.source, s.tag, s.count) for s in {statuses}[:{receives}]])")


def kind_of(source, dest, tag):
    """Return the value and dtype of a message, which both sides know."""
    k = 5 * source + 3 * dest + tag
    return k, DTYPES[k % len(DTYPES)]


def one_by_one(p):
    """Make calls that wait, in an order in which each send meets its receive."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    n = len(members)
    if n == 1:
        return
    for _ in range(draw.randrange(1, 9)):
        (a, b), k, tag = draw.sample(range(n), 2), draw.randrange(60), draw.randrange(4)
        source, dest, status = members[a], members[b], p.name("s")
        wanted = draw.choice([f"{a}, {tag}", f"{a}, MPI.ANY_TAG"])
        p.say(dest, f"{status} = MPI.Status()")
        if draw.random() < 0.5:
            p.say(source, f"{comm}.{draw.choice(['send', 'ssend'])}(thing({k}), {b}, {tag})")
            p.say(dest, draw.choice([
                f"out({comm}.recv(None, {wanted}, {status}))",
                f"out({comm}.irecv(None, {wanted}).wait({status}))",
                f"{comm}.probe({wanted}, {status}); out({comm}.recv(source={status}.source, tag={status}.tag))",
                f"until(lambda: {comm}.iprobe({wanted}, {status})); out({comm}.recv(source={a}, tag={status}.tag))",
            ]))  # fmt: skip
            p.say(dest, f"out([{status}.source, {status}.tag])")
            continue
        dtype, y = draw.choice(DTYPES), p.name("y")
        x = draw.choice([f"v({k}, 5, '{dtype}')", f"[v({k}, 9, '{dtype}'), 5]", f"[v({k}, 9, '{dtype}'), (5, 2)]"])
        p.say(source, f"{comm}.{draw.choice(['Send', 'Ssend'])}({x}, {b}, {tag})")
        p.say(dest, f"{y} = np.zeros({5 + draw.randrange(3)}, '{dtype}')")
        p.say(dest, draw.choice([
            f"{comm}.Recv({y}, {wanted}, {status})",
            f"{comm}.Irecv({y}, {wanted}).Wait({status})",
            f"{comm}.Probe({wanted}, {status}); {comm}.Recv({y}, {a}, {status}.Get_tag())",
        ]))  # fmt: skip
        p.say(dest, f"out({y}); out([{status}.source, {status}.tag, {status}.count])")


def shifts(p):
    """Everybody sends to one and receives from one; a line has ends."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    n, by, dtype, ends = len(members), draw.randrange(-2, 3), draw.choice(DTYPES), draw.random() < 0.5
    how = draw.choice(["Sendrecv", "Sendrecv_replace", "sendrecv"])
    for me, rank in enumerate(members):
        right, left = [
            "MPI.PROC_NULL" if ends and not 0 <= r < n else r % n for r in (me + by, me - by)
        ]  # fmt: skip
        y = p.name("y")
        if how == "sendrecv":
            p.say(rank, f"out({comm}.sendrecv(thing({me}), {right}, 3, source={left}, recvtag=3))")
            continue
        p.say(rank, f"{y} = v({me}, 4, '{dtype}')")
        if how == "Sendrecv":
            p.say(rank, f"{comm}.Sendrecv({y}.copy(), {right}, 3, {y}, {left}, 3)")
        else:
            p.say(rank, f"{comm}.Sendrecv_replace({y}, {right}, 3, {left}, 3)")
        p.say(rank, f"out({y})")


def memory_together(p):
    """Make a collective call on buffers, blocking or not."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    n, root, k, own = len(members), draw.randrange(len(members)), draw.randrange(3), draw.random() < 0.3
    i, dtype, c = draw.choice(["", "I"]), draw.choice(DTYPES), draw.randrange(4)
    op = draw.choice([op for op, kinds in OPS.items() if np.dtype(dtype).kind in kinds])
    counts = [draw.randrange(4) for _ in members]
    call = draw.choice([
        "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall",
        "Alltoallv", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan", "own op",
    ])  # fmt: skip
    for me, rank in enumerate(members):
        at, x, y, q, total = me == root, p.name("x"), p.name("y"), p.name("q"), sum(counts)
        begins = [sum(counts[:r]) for r in range(n)]
        if logical(op) and (n == 1 or call in ("Scan", "Exscan")):
            give = f"(v({me + k}, %s, '{dtype}') != 0).astype('{dtype}')"  # of one part alone MPIs make what they like
        else:
            give = f"v({me + k}, %s, '{dtype}')"
        mine, room = lambda m, give=give: give % m, lambda m: f"np.full({m}, 1, '{dtype}')"
        reduced = f", MPI.{op}"
        if call == "Barrier":
            before, args = [], ""
        elif call == "Bcast":
            before, args = [f"{y} = {mine(c)}"], f"{y}, {root}"
        elif call in ("Gather", "Allgather"):
            before = [f"{x} = {mine(c)}", f"{y} = {room(c * n)}"]
            here = at if call == "Gather" else True
            if own and here:
                before.append(f"{y}[{me * c}:{me * c + c}] = {x}")
            args = f"{'MPI.IN_PLACE' if own and here else x}, {y if here else None}"
            args += f", {root}" if call == "Gather" else ""
        elif call == "Scatter":
            before = [f"{x} = {mine(c * n)}", f"{y} = {room(c)}"]
            args = f"{x if at else None}, {'MPI.IN_PLACE' if own and at else y}, {root}"
        elif call in ("Gatherv", "Allgatherv"):
            before = [f"{x} = {mine(counts[me])}", f"{y} = {room(total)}"]
            spec = f"[{y}, {counts}]" if draw.random() < 0.5 else f"[{y}, ({counts}, {begins})]"
            args = f"{x}, {spec if at or call == 'Allgatherv' else None}" + (f", {root}" if call == "Gatherv" else "")
        elif call == "Scatterv":
            before = [f"{x} = {mine(total)}", f"{y} = {room(counts[me])}"]
            args = f"{f'[{x}, {counts}]' if at else None}, {y}, {root}"
        elif call == "Alltoall":
            before = [f"{x} = {mine(c * n)}", f"{y} = {mine(c * n) if own else room(c * n)}"]
            args = f"{'MPI.IN_PLACE' if own else x}, {y}"
        elif call == "Alltoallv":  # rank a sends counts[b] to rank b
            before = [f"{x} = {mine(total)}", f"{y} = {room(counts[me] * n)}"]
            args = f"[{x}, {counts}], [{y}, {[counts[me]] * n}]"
        elif call == "own op":
            before = [
                f"{x} = v({me + k}, {c}, 'l')",
                f"{y} = np.zeros({c}, 'l')",
                f"{q} = MPI.Op.Create(plus_twice, True)",
            ]
            args = f"{x}, {y}, {q}"
        elif call in ("Reduce", "Allreduce"):
            here = at if call == "Reduce" else True
            before = [f"{x} = {mine(c)}", f"{y} = {x}.copy()" if own else f"{y} = {room(c)}"]
            args = f"{'MPI.IN_PLACE' if own and here else x}, {y if here else None}{reduced}"
            args += f", {root}" if call == "Reduce" else ""
        elif call == "Reduce_scatter":
            before = [f"{x} = {mine(total)}", f"{y} = {room(counts[me])}"]
            args = f"{x}, {y}, {counts}{reduced}"
        elif call == "Reduce_scatter_block":
            before, args = [f"{x} = {mine(c * n)}", f"{y} = {room(c)}"], f"{x}, {y}{reduced}"
        else:
            before = [f"{x} = {mine(c)}", f"{y} = {x}.copy()" if own else f"{y} = {room(c)}"]
            args = f"{'MPI.IN_PLACE' if own else x}, {y}{reduced}"
        for line in before:
            p.say(rank, line)
        if call == "own op":
            p.say(rank, f"{comm}.Allreduce({args}); {q}.Free()")
        elif i:
            p.say(rank, f"{q} = {comm}.I{call.lower()}({args}); " + draw.choice([f"{q}.Wait()", f"until({q}.Test)"]))
        else:
            p.say(rank, f"{comm}.{call}({args})")
        if (
            call != "Barrier"
            and not (call in ("Gather", "Gatherv", "Reduce") and not at)
            and (call, me) != ("Exscan", 0)
        ):
            p.say(rank, f"out({y})")


def logical(op):
    return op in ("LAND", "LOR", "LXOR")


def objects_together(p):
    """Make a collective call on objects."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    n, root, k = len(members), draw.randrange(len(members)), draw.randrange(20)
    call = draw.choice(["barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan",
                        "exscan"])  # fmt: skip
    op = draw.choice(["", "MPI.SUM", "MPI.MAX", "MPI.MIN", "MPI.PROD", "MPI.BXOR", "MPI.LAND", "min", "MPI.MAXLOC",
                      "lambda x, y: x + y + 1", "lists"])  # fmt: skip
    for me, rank in enumerate(members):
        value = f"thing({me + k})"
        if call == "barrier":
            p.say(rank, f"out({comm}.barrier())")
        elif call == "bcast":
            p.say(rank, f"out({comm}.bcast({value}, {root}))")
        elif call == "gather":
            p.say(rank, f"out({comm}.gather({value}, {root}))")
        elif call == "scatter":
            p.say(rank, f"out({comm}.scatter({f'[thing(r) for r in range({n})]' if me == root else None}, {root}))")
        elif call == "allgather":
            p.say(rank, f"out({comm}.allgather({value}))")
        elif call == "alltoall":
            p.say(rank, f"out({comm}.alltoall([thing({me} + 3 * r) for r in range({n})]))")
        else:
            given = {"MPI.MAXLOC": f"({(me + k) % 3}, {me})", "lists": f"[{me}]"}.get(op, str((me * 5 + k) % 4))
            how = f", {op}" if op not in ("", "lists") else ""
            at = f", root={root}" if call == "reduce" else ""
            p.say(rank, f"out({comm}.{call}({given}{how.replace(', ', ', op=', 1)}{at}))")


def communicators(p):
    """Parts and copies, in which later parts of the program talk."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    made, how = p.name("c"), draw.choice(["Split", "Dup"])
    if how == "Split":
        colors = [draw.choice([0, 1, None]) for _ in members]
        keys = [draw.randrange(3) for _ in members]
        for rank, color, key in zip(members, colors, keys, strict=True):
            color = "MPI.UNDEFINED" if color is None else color
            p.say(rank, f"{made} = {comm}.Split({color}, {key}); out(bool({made}))")
        for each in {c for c in colors if c is not None}:
            inside = sorted(
                (key, me) for me, (color, key) in enumerate(zip(colors, keys, strict=True)) if color == each
            )
            p.comms.append((made, [members[me] for _, me in inside]))
    else:
        for rank in members:
            p.say(rank, f"{made} = {comm}.Dup(); out({made}.rank)")
        p.comms.append((made, members))


def anybody(p):
    """Let a rank take what comes, from any rank; what it finds does not depend on the order."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    root, tag, times = draw.randrange(len(members)), 1000 + p.count, draw.randrange(1, 4)
    for me, rank in enumerate(members):
        if me != root:
            p.say(rank, f"for i in range({times}): {comm}.{draw.choice(['send', 'ssend'])}(({me}, i), {root}, {tag})")
    total = times * (len(members) - 1)
    p.say(members[root], f"out(sorted({comm}.recv(None, MPI.ANY_SOURCE, {tag}) for _ in range({total})))")
    p.name("t")


def in_order(p):
    """Messages of one rank and receives that fit several of them: each goes to the first receive that it fits.

    Which that is does not depend on what comes first (MPI 4.1, section 3.5), so what each receive gets is certain.
    """
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    a, b = draw.randrange(len(members)), draw.randrange(len(members))
    base = 2000 + 10 * p.count
    tags = [base + draw.randrange(3) for _ in range(draw.randrange(1, 7))]
    objects, left, patterns = draw.random() < 0.5, list(tags), []
    while left:
        tag = draw.choice([*set(left), "MPI.ANY_TAG"])
        patterns.append(f"source={draw.choice([a, 'MPI.ANY_SOURCE'])}, tag={tag}")
        left.remove(left[0] if tag == "MPI.ANY_TAG" else tag)
    free = draw.random() < 0.5 and comm == "c0"
    if free:  # a communicator of their own, which is freed while messages are under way
        comm = p.name("c")
        for rank in members:
            p.say(rank, f"{comm} = c0.Dup()")
    alone(p, comm, members, free)
    sends, receives, requests = p.name("q"), p.name("q"), p.name("y")
    for me in {a, b}:
        rank = members[me]
        if me == a:
            how = draw.choice(["isend", "issend"])
            x = [f"thing({k})" if objects else f"v({k}, 3, 'd')" for k in range(len(tags))]
            how = how if objects else how.capitalize()
            p.say(rank, f"{sends} = [" + ", ".join(
                f"{comm}.{how}({x[k]}, {b}, {tag})" for k, tag in enumerate(tags)) + "]")  # fmt: skip
        if me == b:
            if objects:
                p.say(rank, f"{receives} = [" + ", ".join(f"{comm}.irecv({each})" for each in patterns) + "]")
            else:
                p.say(rank, f"{requests} = [np.zeros(3) for _ in range({len(tags)})]")
                p.say(rank, f"{receives} = [" + ", ".join(
                    f"{comm}.Irecv({requests}[{k}], {each})" for k, each in enumerate(patterns)) + "]")  # fmt: skip
    if free:
        for rank in members:
            p.say(rank, f"{comm}.Free(); out({comm} == MPI.COMM_NULL)")
    for me in sorted({a, b}):
        waited = " + ".join([receives] * (me == b) + [sends] * (me == a))
        found = f"out(MPI.Request.waitall({waited})[:{len(tags)}])"
        if not objects:
            found = f"MPI.Request.Waitall({waited})" + f"; out({requests})" * (me == b)
        p.say(members[me], found if me == b else f"MPI.Request.waitall({waited})")
    alone(p, comm, members, free)
    p.name("t")


def alone(p, comm, members, is_own):
    """Nothing else is under way, or a receive of anything would take that."""
    for rank in [] if is_own else members:
        p.say(rank, f"{comm}.Barrier()")


def crowd(p):
    """Let a rank take all that the others send with any tag, by all means; sort what it finds."""
    draw, (comm, members) = p.draw, p.draw.choice(p.comms)
    root, times, probes = draw.randrange(len(members)), draw.randrange(1, 4), draw.random() < 0.5
    alone(p, comm, members, False)
    for me, rank in enumerate(members):
        if me == root:
            continue
        how = draw.choice(["send", "ssend", "isend"])
        send = f"{comm}.{how}(({me}, i), {root}, i)"
        p.say(rank, f"MPI.Request.waitall([{send} for i in range({times})])" if how == "isend"
              else f"for i in range({times}): {send}")  # fmt: skip
    total, root = times * (len(members) - 1), members[root]
    if probes:
        p.say(root, f"out(sorted(probed(MPI, {comm}, {draw.choice([True, False])}) for _ in range({total})))")
    elif draw.random() < 0.5:
        p.say(root, f"out(sorted({comm}.recv() for _ in range({total})))")
    else:
        p.say(root, f"out(sorted(MPI.Request.waitall([{comm}.irecv() for _ in range({total})])))")
    alone(p, comm, members, False)


def freed(p):
    """Free a communicator that is not needed any more."""
    made = [each for each in p.comms if each[0] != "c0"]
    if not made:
        communicators(p)
        return
    draw, comm = p.draw, p.draw.choice(made)
    how, name = draw.choice(["Free", "Disconnect"]), comm[0]
    n, last = len(comm[1]), draw.random() < 0.5
    for me, rank in enumerate(comm[1]):
        if last and n > 1:  # it ends with a receive from anybody
            p.say(rank, f"{name}.send({me}, {(me + 1) % n}, 5)" if me == 0 else f"out({name}.recv(tag=5))")
            p.say(rank, f"out({name}.recv(tag=5))" if me == 0 else f"{name}.send({me}, {(me + 1) % n}, 5)")
        p.say(rank, f"{name}.{how}(); out([{name} == MPI.COMM_NULL, bool({name})])")
    p.comms.remove(comm)


PARTS = [at_once, at_once, one_by_one, shifts, memory_together, memory_together, memory_together, objects_together,
         communicators, communicators, anybody, in_order, in_order, crowd, freed, freed]  # fmt: skip


# -- programs that hang --


def hanging(seed, size):
    """Make a program that never ends, with the line in which each rank waits without end."""
    p = Program(seed, size)
    draw = p.draw
    for _ in range(draw.randrange(3)):
        draw.choice(PARTS)(p)
    (a, b, *others), tag = draw.sample(range(size), size), draw.randrange(1, 50)
    kind = draw.choice(list(HANGS))
    last = HANGS[kind](p, a, b, others, tag)
    return p.text(), {rank: p.line_of(rank) for rank in last}


def nobody_sends(p, a, b, others, tag):
    p.say(a, f"c0.{p.draw.choice(['recv(None', 'Recv(np.zeros(3)', 'irecv(None', 'Irecv(np.zeros(3)'])}, {b}, {tag})")
    if "irecv" in p.lines[a][-1].lower():
        p.lines[a][-1] += ".wait()"
    p.say(b, f"c0.{p.draw.choice(['recv(None', 'probe('])}, {a}, {tag})".replace("(, ", "("))
    return [a, b]


def another_tag(p, a, b, others, tag):
    p.say(a, p.draw.choice([f"c0.recv(None, {b}, {tag})", f"c0.probe({b}, {tag})"]))
    p.say(b, p.draw.choice([f"c0.ssend(thing(3), {a}, {tag + 1})", f"c0.issend(None, {a}, {tag + 1}).wait()"]))
    return [a, b]


def all_send_first(p, a, b, others, tag):
    ring = [a, b, *others[: p.draw.randrange(len(others) + 1)]]
    for rank, to in zip(ring, ring[1:] + ring[:1], strict=True):
        p.say(rank, p.draw.choice([f"c0.Ssend(np.zeros(4), {to}, {tag})", f"c0.ssend('big', {to}, {tag})"]))
    return ring


def all_receive_first(p, a, b, others, tag):
    ring = [a, b, *others[: p.draw.randrange(len(others) + 1)]]
    for rank, to in zip(ring, ring[1:] + ring[:1], strict=True):
        p.say(rank, f"c0.recv(None, {to}, {tag})")
    return ring


def other_order(p, a, b, others, tag):
    """Two communicators of the same ranks, in another order."""
    first, second = p.name("c"), p.name("c")
    for rank in range(p.size):
        p.say(rank, f"{first} = c0.Dup(); {second} = c0.Dup()")
    for rank in range(p.size):
        p.say(rank, f"{first if rank == a else second}.{p.draw.choice(['Barrier', 'Barrier'])}()")
    return range(p.size)


def left_out(p, a, b, others, tag):
    """Make a collective call that one rank does not make."""
    call = p.draw.choice(
        ["allreduce(1)", "Barrier()", "alltoall(list(range(c0.size)))", "Allgather(np.zeros(1), np.zeros(c0.size))"]
    )
    for rank in range(p.size):
        if rank != a:
            p.say(rank, f"c0.{call}")
    if p.draw.random() < 0.5:
        p.say(a, f"c0.recv(None, {b}, {tag})")
        return range(p.size)
    return [rank for rank in range(p.size) if rank != a]


def one_too_many(p, a, b, others, tag):
    """Let a rank wait for one message more than comes."""
    times = p.draw.randrange(1, 4)
    p.say(b, f"for i in range({times}): c0.send(i, {a}, {tag})")
    p.say(b, f"c0.recv(None, {a}, {tag})")
    p.say(a, f"for i in range({times + 1}): c0.recv(None, {p.draw.choice([str(b), 'MPI.ANY_SOURCE'])}, {tag})")
    return [a, b]


def waits_for_all(p, a, b, others, tag):
    """Of several requests one never ends."""
    p.say(a, f"q = [c0.irecv(None, {b}, {tag}), c0.irecv(None, {b}, {tag + 1})]")
    p.say(a, "MPI.Request.waitall(q)")
    p.say(b, f"c0.send(1, {a}, {tag})")
    p.say(b, f"c0.ssend(2, {a}, {tag + 2})")
    return [a, b]


HANGS = {f.__name__: f for f in (nobody_sends, another_tag, all_send_first, all_receive_first, other_order, left_out,
                                 one_too_many, waits_for_all)}  # fmt: skip


# -- programs that may hang --


def uncertain(seed, size):
    """Make a program that hangs or ends, with the number of the line in which each rank waits without end.

    By sends that wait for their receive, receives that name their source, and barriers, so it is certain which.
    """
    p = Program(seed, size)
    draw, calls = p.draw, [[] for _ in range(size)]
    for _ in range(draw.randrange(1, 3 * size)):
        if draw.random() < 0.1:
            for rank in range(size):
                calls[rank].append(("barrier", None, None))
        a, b = draw.sample(range(size), 2)
        tag = draw.randrange(2)
        calls[a].append(("send", b, tag))
        calls[b].append(("recv", a, tag))
    for _ in range(draw.choice([0, 0, 1, 2])):  # two calls of a rank change places
        mine = calls[draw.randrange(size)]
        if len(mine) > 1:
            i, j = draw.sample(range(len(mine)), 2)
            mine[i], mine[j] = mine[j], mine[i]
    if draw.random() < 0.3:  # one is left out
        mine = calls[draw.randrange(size)]
        if mine:
            mine.pop(draw.randrange(len(mine)))
    for rank, mine in enumerate(calls):
        for kind, peer, tag in mine:
            upper = draw.random() < 0.3
            p.say(rank, {"barrier": "c0.Barrier()", "send": f"c0.ssend({rank}, {peer}, {tag})",
                         "recv": f"out(c0.{'irecv' if upper else 'recv'}(None, {peer}, {tag})"
                                 f"{'.wait()' if upper else ''})"}[kind])  # fmt: skip
    return p.text(), stuck(calls)


def stuck(calls):
    """Where ranks wait for ever that make these calls, one after the other: by rank, the line."""
    at = [0] * len(calls)

    def current(rank):
        return calls[rank][at[rank]] if at[rank] < len(calls[rank]) else None

    moved = True
    while moved:
        moved = False
        if all(current(rank) and current(rank)[0] == "barrier" for rank in range(len(calls))):
            at, moved = [n + 1 for n in at], True
        for a in range(len(calls)):
            call = current(a)
            if call and call[0] == "send" and current(call[1]) == ("recv", a, call[2]):
                at[a], at[call[1]], moved = at[a] + 1, at[call[1]] + 1, True
    before = [sum(len(mine) + 3 for mine in calls[:rank]) for rank in range(len(calls))]
    return {rank: before[rank] + at[rank] + 2 for rank, mine in enumerate(calls) if at[rank] < len(mine)}


def play(text, file, comm, MPI):
    """Return what a rank finds that runs a program."""
    names = {"np": np, "v": v, "thing": thing, "until": until, "by_any": by_any, "by_some": by_some,
             "plus_twice": plus_twice, "probed": probed}  # fmt: skip
    exec(compile(text, file, "exec"), names)
    found = []
    names[f"rank{comm.Get_rank()}"](comm, MPI, lambda x: found.append(told(x)))
    return found


if __name__ == "__main__":
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if sys.argv[1] == "hang":
        print("begun", flush=True)
        play(hanging(int(sys.argv[2]), world.size)[0], "hang", world, MPI)
        print("ended", flush=True)
    else:
        first, count = map(int, sys.argv[1:])
        for seed in range(first, first + count):
            comm = world.Dup()  # what one program leaves, the next does not find
            rows = comm.gather(play(source(seed, comm.size), "program", comm, MPI))
            if comm.rank == 0:
                print(json.dumps(rows), flush=True)
