"""Wrong answers to e10_grid. What a cell holds is told in tests/answers.py."""

# %% alone_without_modulo
# says: Every rank has a color of its own
# thinks: Dividing the rank by tensor leaves the data coordinate.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    t = comm.rank % tensor
    d = comm.rank // tensor
    p = comm.rank // (tensor * data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% assertion
# says: An assert raises an AssertionError
# thinks: An assert states what has to hold, and stops the program where it does not.
def grid(comm, data, pipeline, tensor):
    assert data * pipeline * tensor == comm.size, "the sizes do not fit"
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% checked_after
# says: it raises before the first Split, and asks no other rank.
# thinks: The sizes of the new communicators show whether the grid fits, so I look at those.
def grid(comm, data, pipeline, tensor):
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    axes = comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)
    if [axis.size for axis in axes] != [data, pipeline, tensor]:
        raise ValueError("the sizes do not fit")
    return axes


# %% color_and_key_swapped
# says: These are the ranks with the same data coordinate
# thinks: The first argument is the number that I want to have, and the second one names the group.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(d, p * tensor + t), comm.Split(p, d * tensor + t), comm.Split(t, p * data + d)


# %% color_of_one_other
# says: Ranks of several groups got one color
# thinks: Ranks of one stage average their gradients, so the stage is the color of the data axis.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p, d), comm.Split(d, p), comm.Split(p * data + d, t)


# %% color_sum
# says: Ranks of several groups got one color
# thinks: A color has to depend on both other coordinates, so I add them.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p + t, d), comm.Split(d + t, p), comm.Split(p + d, t)


# %% color_wrong_base
# says: Ranks of several groups got one color
# thinks: Any of the sizes makes one number of two coordinates.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * pipeline + t, d), comm.Split(d * data + t, p), comm.Split(p * pipeline + d, t)


# %% comm_world
# says: comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.
# thinks: comm is a short name for MPI.COMM_WORLD.
from mpi4py import MPI


def grid(comm, data, pipeline, tensor):
    world = MPI.COMM_WORLD
    if data * pipeline * tensor != world.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(world.rank, tensor)
    p, d = divmod(rest, data)
    return world.Split(p * tensor + t, d), world.Split(d * tensor + t, p), world.Split(p * data + d, t)


# %% data_fastest
# says: data as its fastest axis and pipeline as its slowest
# thinks: The order of the arguments is the order of the axes, the first one fastest.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, d = divmod(comm.rank, data)
    p, t = divmod(rest, tensor)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% data_slowest
# says: tensor as its fastest axis and data as its slowest
# thinks: Replicas of the data axis need each other least, so this axis is the slowest, as in data x pipeline x tensor.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    d, p = divmod(rest, pipeline)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% divides_by_data
# says: Coordinates are digits of the rank
# thinks: To get the data coordinate I divide by the size of the data axis.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    t = comm.rank % tensor
    d = comm.rank // data % data
    p = comm.rank // (data * tensor)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% divides_by_pipeline
# says: share the color that the two others make
# thinks: The stage is the rank divided by the size of a stage, which is pipeline x tensor.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    t = comm.rank % tensor
    d = comm.rank // tensor % data
    p = comm.rank // (pipeline * tensor)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% floor_divided_sizes
# says: The product of the sizes has to be compared
# thinks: Dividing the number of ranks by two of the sizes has to leave the third.
def grid(comm, data, pipeline, tensor):
    if comm.size // tensor // pipeline != data:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% frees_comms
# says: a communicator that was freed
# thinks: Whoever makes communicators frees them, or MPI runs out of them.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    axes = comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)
    for axis in axes:
        axis.Free()
    return axes


# %% grid_may_be_smaller
# says: The product of the sizes has to be compared
# thinks: A grid needs as many ranks as it has places, and more of them do no harm.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor > comm.size:
        raise ValueError("there are too few ranks")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% key_reversed
# says: the key of Split is the coordinate
# thinks: The key is a priority: the higher it is, the earlier the rank comes.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, -d), comm.Split(d * tensor + t, -p), comm.Split(p * data + d, -t)


# %% only_ranks_beyond_raise
# says: The product of the sizes has to be compared
# thinks: The ranks that the grid has no place for are those that cannot go on.
def grid(comm, data, pipeline, tensor):
    if comm.rank >= data * pipeline * tensor:
        raise ValueError("the grid has no place for this rank")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% multiple_of_the_grid
# says: The product of the sizes has to be compared
# thinks: If the number of ranks is a multiple of the model's size, the rest is more data parallelism.
def grid(comm, data, pipeline, tensor):
    if comm.size % (data * pipeline * tensor):
        raise ValueError("the sizes do not divide the number of ranks")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% none_for_axes_of_one
# says: comm.Split returns one, also for one rank
# thinks: Along an axis of one rank there is nobody to talk to.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return (
        comm.Split(p * tensor + t, d) if data > 1 else None,
        comm.Split(d * tensor + t, p) if pipeline > 1 else None,
        comm.Split(p * data + d, t) if tensor > 1 else None,
    )


# %% one_color
# says: All ranks got one color
# thinks: Each axis has one communicator, in which the key tells who is who.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(0, d), comm.Split(1, p), comm.Split(2, t)


# %% only_rank_0_raises
# says: all ranks see the same three
# thinks: One error message is enough.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size and comm.rank == 0:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% other_order
# says: Three right communicators in another order, (tensor, data, pipeline)
# thinks: From the fastest axis to the slowest.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * data + d, t), comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p)


# %% pipeline_first
# says: Three right communicators in another order, (pipeline, data, tensor)
# thinks: From the slowest axis to the fastest.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(d * tensor + t, p), comm.Split(p * tensor + t, d), comm.Split(p * data + d, t)


# %% pipeline_fastest
# says: pipeline as its fastest axis and data as its slowest
# thinks: Stages that send to each other have numbers that follow each other.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, p = divmod(comm.rank, pipeline)
    d, t = divmod(rest, tensor)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% prints_and_goes_on
# says: The product of the sizes has to be compared
# thinks: A warning is friendlier than an exception.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        print("the sizes do not fit")
        return None
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% shares_the_coordinate
# says: These are the ranks with the same data coordinate
# thinks: The tensor communicator holds the ranks with the same tensor coordinate, so this is the color.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(d, comm.rank), comm.Split(p, comm.rank), comm.Split(t, comm.rank)


# %% sizes_not_checked
# says: The product of the sizes has to be compared
# thinks: Whoever calls this gives sizes that fit.
def grid(comm, data, pipeline, tensor):
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% split_by_the_first_of_an_axis
# says: every rank of the communicator must make it
# thinks: Only ranks with tensor coordinate 0 average over the data axis, and only they need that communicator.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    along_tensor = comm.Split(p * data + d, t)
    along_pipeline = comm.Split(d * tensor + t, p)
    along_data = comm.Split(p, d) if t == 0 else None
    return along_data, along_pipeline, along_tensor


# %% sum_of_sizes
# says: is a grid of all 12 ranks
# thinks: The ranks are those of all three axes together.
def grid(comm, data, pipeline, tensor):
    if data + pipeline + tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% undefined_for_others
# says: MPI.COMM_NULL
# thinks: The communicator of an axis is the line through rank 0, and others are not in it.
from mpi4py import MPI


def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return (
        comm.Split(0 if p == t == 0 else MPI.UNDEFINED, d),
        comm.Split(0 if d == t == 0 else MPI.UNDEFINED, p),
        comm.Split(0 if p == d == 0 else MPI.UNDEFINED, t),
    )


# %% returns_nothing
# says: are they returned?
# thinks: The communicators are made, and each rank has them.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    along = comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% no_split_for_one
# says: an axis of one is a Split, too
# thinks: An axis of one rank needs no communicator of its own.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the grid does not fit")
    t = comm.rank % tensor
    d = comm.rank // tensor % data
    p = comm.rank // (tensor * data)
    return (
        comm.Split(p * tensor + t, d) if data > 1 else comm,
        comm.Split(d * tensor + t, p) if pipeline > 1 else comm,
        comm.Split(p * data + d, t) if tensor > 1 else comm,
    )


# %% splits_the_stage_again
# says: the others are not in what was split
# thinks: First a communicator for each stage; everything else is a part of it.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the grid does not fit")
    t = comm.rank % tensor
    d = comm.rank // tensor % data
    p = comm.rank // (tensor * data)
    stage = comm.Split(p, comm.rank)
    return stage.Split(t, d), stage.Split(d * tensor + t, p), stage.Split(d, t)


# %% base_of_the_wrong_axis
# says: Ranks of several groups got one color
# thinks: Two coordinates make one number; one of them times its own size will do.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the grid does not fit")
    t = comm.rank % tensor
    d = comm.rank // tensor % data
    p = comm.rank // (tensor * data)
    return (
        comm.Split(p * pipeline + t, d),
        comm.Split(d * data + t, p),
        comm.Split(p * pipeline + d, t),
    )


# %% as_the_rank_is_counted
# says: Three right communicators in another order, (pipeline, data, tensor)
# thinks: Slowest first, as the rank's number is made.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the grid does not fit")
    t = comm.rank % tensor
    d = comm.rank // tensor % data
    p = comm.rank // (tensor * data)
    return comm.Split(d * tensor + t, p), comm.Split(p * tensor + t, d), comm.Split(p * data + d, t)


# %% data_by_the_rest_of_data
# says: Coordinates are digits of the rank
# thinks: Each coordinate is the rank modulo the size of its axis.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the grid does not fit")
    t, d, p = comm.rank % tensor, comm.rank % data, comm.rank // (tensor * data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% data_is_the_slowest
# says: data as its slowest
# thinks: The arguments are data, pipeline, tensor, so that is the order in which ranks are counted.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the grid does not fit")
    t = comm.rank % tensor
    p = comm.rank // tensor % pipeline
    d = comm.rank // (tensor * pipeline)
    return (
        comm.Split(p * tensor + t, d),
        comm.Split(d * tensor + t, p),
        comm.Split(p * data + d, t),
    )


# %% all_are_asked
# says: it raises before the first Split, and asks no other rank.
# thinks: All ranks have to agree that the sizes do not fit.
def grid(comm, data, pipeline, tensor):
    if not all(comm.allgather(data * pipeline * tensor == comm.size)):
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    return comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)


# %% kept_by_sizes
# says: comm has other ranks than in an earlier call with these sizes
# thinks: A grid of the same sizes is the same grid.
GRIDS = {}


def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    if (data, pipeline, tensor) not in GRIDS:
        rest, t = divmod(comm.rank, tensor)
        p, d = divmod(rest, data)
        made = comm.Split(p * tensor + t, d), comm.Split(d * tensor + t, p), comm.Split(p * data + d, t)
        GRIDS[data, pipeline, tensor] = made
    return GRIDS[data, pipeline, tensor]


# %% splits_in_another_order
# says: Splits belong together by their order: every rank makes those of the three axes in the same one.
# thinks: Each rank makes its communicators in the order that suits it: those with the other ranks' numbers come later.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    colors = {"data": (p * tensor + t, d), "pipeline": (d * tensor + t, p), "tensor": (p * data + d, t)}
    made = {}
    for axis in sorted(colors, key=lambda axis: (-colors[axis][1], axis)):
        made[axis] = comm.Split(*colors[axis])
    return made["data"], made["pipeline"], made["tensor"]
