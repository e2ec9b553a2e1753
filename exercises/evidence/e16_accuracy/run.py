"""Run e16_accuracy as in the report: `mpirun -np 2 python exercises/evidence/e16_accuracy/run.py [DAY ...] [FILE.json]`.

A day is a number, the seed of its photographs. With `-np 1`, one process has the photographs of both cameras. With
TORCH_FR_BUFFER_SIZE=200 and TORCH_DISTRIBUTED_DEBUG=DETAIL in the environment, FILE.json gets what torch's flight
recorder has noted on each rank. Without the latter, gloo ends the process at the error.
"""

import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_accuracy import CLASSES, LIGHTS, report, validate

DAYS, EPOCHS, CAMERAS, SIZE = (12003, 46), 3, 2, 24
NOISE = {"day": 0.9, "dusk": 1.4, "night": 1.9}
MOST = (1, 4), (0, 2), (280, 300), (0, 3), (0, 2)  # from and to: photographs of each part of a day
comm = MPI.COMM_WORLD
torch.set_num_threads(1)
kinds = torch.randn(CLASSES, SIZE, generator=torch.Generator().manual_seed(0))  # what an animal of a kind looks like


def photographs(lights, draw):
    """Draw a photograph in each of these lights; a list of (x, label, light)."""
    labels = torch.randint(CLASSES, (len(lights),), generator=draw).tolist()
    noise = torch.randn(len(lights), SIZE, generator=draw)
    return [(kinds[k] + NOISE[m] * z, k, m) for k, m, z in zip(labels, lights, noise, strict=True)]


def of_camera(day, camera):
    """Draw the photographs of a camera from midnight to midnight."""
    draw = torch.Generator().manual_seed(10 * day + camera)
    night, dusk, light, evening, late = (torch.randint(*most, (1,), generator=draw).item() for most in MOST)
    lights = ["night"] * night + ["dusk"] * dusk + ["day"] * light + ["dusk"] * evening + ["night"] * late
    return photographs(lights, draw)


def train(net, epoch):
    """Train the network on an epoch's photographs, which all ranks have."""
    draw = torch.Generator().manual_seed(epoch)
    photos = photographs([LIGHTS[i] for i in torch.randint(len(LIGHTS), (1000,), generator=draw)], draw)
    x, y = torch.stack([photo[0] for photo in photos]), torch.tensor([photo[1] for photo in photos])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for batch in torch.arange(len(y)).split(50):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()


def run(day):
    """Train and test with the photographs of a day."""
    torch.manual_seed(0)
    net = torch.nn.Linear(SIZE, CLASSES)
    photos = [photo for camera in range(comm.rank, CAMERAS, comm.size) for photo in of_camera(day, camera)]
    here = ", ".join(f"{sum(photo[2] == light for photo in photos)} {light}" for light in LIGHTS)
    print(f"day {day}, rank {comm.rank} of {comm.size}: {len(photos)} photographs, of them {here}", flush=True)
    comm.Barrier()
    for epoch in range(EPOCHS):
        train(net, epoch)
        totals = validate(net, photos)
        if comm.rank == 0:
            report(epoch, totals)
            sys.stdout.flush()


def noted():
    """Return the all-reduces that torch's flight recorder has noted on this rank, a line each."""
    entries = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, False))["entries"]
    entries = [entry for entry in entries if entry["profiling_name"] == "gloo:all_reduce"]  # not those of DETAIL itself
    keys = ("collective_seq_id", "profiling_name", "input_sizes")
    return [json.dumps({key: entry[key] for key in keys}) for entry in entries]


def main():
    """Run the days, until there is an error."""
    days = [int(argument) for argument in sys.argv[1:] if argument.isdigit()] or DAYS
    store = dist.FileStore(comm.bcast(os.path.join(tempfile.mkdtemp(), "store")), comm.size)
    timeout = datetime.timedelta(seconds=20)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=timeout)
    failed = False
    try:
        for day in days:
            run(day)
    except RuntimeError as error:
        print(f"rank {comm.rank}: RuntimeError: {error}", flush=True)
        failed = True
    if "TORCH_FR_BUFFER_SIZE" in os.environ:
        ranks = comm.gather(noted())
        if comm.rank == 0:
            texts = [f'"rank {rank}": [\n' + ",\n".join(lines) + "\n]" for rank, lines in enumerate(ranks)]
            Path(sys.argv[-1]).write_text("{" + ",\n".join(texts) + "}\n", encoding="utf-8")
    comm.Barrier()
    sys.exit(failed)


if __name__ == "__main__":
    main()
