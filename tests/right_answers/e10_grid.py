"""Right answers to e10_grid. What a cell holds is told in tests/answers.py."""

# %% arange_table
# thinks: The ranks written into a table of three dimensions; the axis is a line through my place in it.
import numpy as np


def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError(f"{data} x {pipeline} x {tensor} is not {comm.size}")
    table = np.arange(comm.size).reshape(pipeline, data, tensor)
    ((p, d, t),) = np.argwhere(table == comm.rank)
    lines = table[p, :, t], table[:, d, t], table[p, d, :]
    return tuple(comm.Split(int(line[0]), comm.rank) for line in lines)


# %% cartesian
# thinks: MPI has Cartesian topologies, and Sub gives the communicators of their axes.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    cart = comm.Create_cart([pipeline, data, tensor], reorder=False)
    return cart.Sub([False, True, False]), cart.Sub([True, False, False]), cart.Sub([False, False, True])


# %% groups
# thinks: Create_group makes a communicator of a list of ranks, called by these ranks only.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    lines = (
        [(p * data + i) * tensor + t for i in range(data)],
        [(i * data + d) * tensor + t for i in range(pipeline)],
        [(p * data + d) * tensor + i for i in range(tensor)],
    )
    return tuple(comm.Create_group(comm.Get_group().Incl(line)) for line in lines)


# %% no_key
# thinks: Without a key, or with equal ones, ranks keep their order in comm, which is that of their coordinates.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.Get_size():
        raise ValueError("the sizes do not fit")
    rank = comm.Get_rank()
    t, d, p = rank % tensor, rank // tensor % data, rank // (tensor * data)
    return comm.Split(rank - d * tensor), comm.Split(color=rank % (data * tensor)), comm.Split(rank // tensor)


# %% of_a_stage
# thinks: The ranks of one stage are split again; the pipeline is left for last.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    plane = data * tensor
    stage = comm.Split(comm.rank // plane, comm.rank)
    along_tensor = stage.Split(stage.rank // tensor, key=stage.rank)
    along_data = stage.Split(stage.rank % tensor, key=stage.rank)
    return along_data, comm.Split(comm.rank % plane, comm.rank), along_tensor


# %% whole_comm_where_one_axis
# thinks: Where an axis has all ranks, comm itself is its communicator.
def grid(comm, data, pipeline, tensor):
    if data * pipeline * tensor != comm.size:
        raise ValueError("the sizes do not fit")
    rest, t = divmod(comm.rank, tensor)
    p, d = divmod(rest, data)
    axes = []
    for size, color, key in (
        (data, p * tensor + t, d),
        (pipeline, d * tensor + t, p),
        (tensor, p * data + d, t),
    ):
        axes.append(comm if size == comm.size else comm.Split(color, key))
    return tuple(axes)
