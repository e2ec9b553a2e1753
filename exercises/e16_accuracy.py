"""Exercise e16: the accuracy of 9433 %.

A network learns to tell apart twenty kinds of animals in photographs. After each epoch, the program below tests it on
two ranks with the photographs of a day. Each rank has those of one camera, from midnight to midnight: a few at night
and at dusk, and many by day. Some days go well. On other days the job ends with an error while it sums up the metrics
of an epoch. On one day there was no error, and it printed an accuracy of 9433 %. One process that tests all
photographs has shown neither.

Evidence, in evidence/e16_accuracy/: `ranks.log`, what two ranks printed on two such days; `one.log`, what one process
printed on the same days; `detail.txt`, the second of these days once more with TORCH_DISTRIBUTED_DEBUG=DETAIL;
`fr.json`, the all-reduces of that run that torch's flight recorder noted on each rank before the error. `mpirun -np 2
python exercises/evidence/e16_accuracy/run.py` shows it again; with `-np 1`, it is the one process.

First name the cause in `diagnose`. Then mend the program, so that `validate` does what its docstring says.

Check it with `mpcourse check e16_accuracy`. Stuck? `mpcourse hint e16_accuracy`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

CLASSES, LIGHTS = 20, ("day", "dusk", "night")

# The shape of each metric that there may be, by its name. All of them are sums over photographs.
SHAPES = {"confusion": (CLASSES, CLASSES), "misses": (CLASSES,)}
SHAPES |= {f"{light} {what}": (1,) for light in LIGHTS for what in ("photos", "loss", "hits")}


def diagnose():
    """Return the name of the cause, one of these.

    "crash": a rank has ended, and the others go on with numbers that it had not finished.
    "order": ranks make their collective calls in different orders, or some ranks make fewer of them.
    "race": a sum is read while its all-reduce is still under way.
    "reset": sums of earlier epochs are still in the metrics.
    "shares": some photographs are on both ranks, and count twice.
    "timeout": a rank is so slow that the other one stops waiting for it.
    """
    raise NotImplementedError("e16_accuracy: name the cause")


@torch.no_grad()
def measure(net, photos):
    """Return the sums of metrics over this rank's photographs, by name."""
    sums = {}

    def add(name, value, *place):
        sums.setdefault(name, torch.zeros(SHAPES[name], dtype=torch.float64))[place] += value

    for x, label, light in photos:
        scores = net(x)
        guess = scores.argmax().item()
        add("confusion", 1, label, guess)
        add(f"{light} photos", 1)
        add(f"{light} loss", cross_entropy(scores, torch.tensor(label)).item())
        if guess == label:
            add(f"{light} hits", 1)
        else:
            add("misses", 1, label)
    return sums


def validate(net, photos):
    """Test a network on all ranks; return sums of metrics over the photographs of all ranks, a dict by name.

    All ranks call this, and `dist` is initialised. All of them get the same names and the same sums.
    net: returns the scores of a photograph, a tensor of shape (CLASSES,).
    photos: this rank's photographs, a list of (x, label, light). label is an int, and light is one of LIGHTS. Each
        photograph is on one rank. Ranks may have different numbers of them, and also none.

    `measure` says what is added to which metric. A metric is in the result if it was added to on any rank, and it is
    a float64 tensor of the shape in SHAPES. The names are sorted. A call of `validate` makes at most one collective
    call for each name in SHAPES, and five more. By these, a rank receives at most the metrics of SHAPES once, as
    float64, and 100 bytes for each name.
    """
    sums = measure(net, photos)
    totals = {}
    for name, own in sums.items():
        totals[name] = own.clone()
        dist.all_reduce(totals[name])
    return dict(sorted(totals.items()))


def report(epoch, totals):
    """Print the metrics of an epoch; only rank 0 calls this."""
    for light in LIGHTS:
        photos, hits, loss = (
            totals.get(f"{light} {what}", torch.zeros(1)).item() for what in ("photos", "hits", "loss")
        )
        if photos > 0:
            accuracy = f"accuracy {100 * hits / photos:.0f} %"
            print(f"epoch {epoch}, {light}: {photos:.0f} photographs, {accuracy}, loss {loss / photos:.3f}")
