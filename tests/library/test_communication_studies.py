"""The studies of DiLoCo and of gradient compression: what is in them, and that their programs make it."""

import pytest
import torch

from lessons.studies import compression, diloco
from mpcourse.studies.compression import RATES, WAYS, shipped_compression
from mpcourse.studies.compression import SEEDS as COMPRESSION_SEEDS
from mpcourse.studies.diloco import ALONE, LONGER, OUTERS, PERIODS, SEEDS, STEPS, TOGETHER, shipped_diloco

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_way_of_diloco_has_all_seeds_and_ends_after_all_steps():
    study = shipped_diloco()
    assert set(study) == {ALONE, TOGETHER, LONGER, *(f"{outer} {h}" for outer in OUTERS for h in PERIODS)}
    for name, runs in study.items():
        assert len(runs) == SEEDS and all(len(run.steps) == len(run.losses) for run in runs)
        assert {run.steps[-1] for run in runs} == {8 * STEPS if name == LONGER else STEPS}
    before = [run.losses[0] for run in study[ALONE]]
    assert all([run.losses[0] for run in runs] == before for runs in study.values())  # where the ways part


def test_a_replica_sends_an_hth_of_what_data_parallelism_sends():
    study = shipped_diloco()
    assert study[ALONE][0].sent == study[LONGER][0].sent == 0
    beginning = 3 * 4 * 114_432  # rank 0 sends the parameters to three others, which pass them on
    for outer in OUTERS:
        for h in PERIODS:
            (sent,) = {run.sent for run in study[f"{outer} {h}"]}
            assert sent - beginning == pytest.approx((study[TOGETHER][0].sent - beginning) / h, rel=1e-6)


def test_the_programs_train_what_is_shipped_again():
    """A processor that rounds otherwise changes a loss a little."""
    found = diloco.train(diloco.before(3), 3, **diloco.ways()[ALONE])
    shipped = shipped_diloco()[ALONE][3]
    assert found["steps"] == list(shipped.steps)
    assert found["losses"] == pytest.approx(list(shipped.losses), abs=0.02)
    way, rate = "PowerSGD, rank 1", RATES[0]
    accuracy, sent = compression.train(way, rate, 2)
    assert accuracy == pytest.approx(shipped_compression()[way].accuracy[rate][2], abs=3)
    assert sent == shipped_compression()[way].sent


def test_each_way_of_compression_has_all_rates_and_seeds():
    study = shipped_compression()
    assert list(study) == list(WAYS)
    for way in study.values():
        assert tuple(way.accuracy) == RATES and {len(seeds) for seeds in way.accuracy.values()} == {COMPRESSION_SEEDS}


def test_the_steps_of_a_short_training_are_those_of_the_papers_algorithm():
    """Two inner steps on each of two replicas by hand, and one outer step."""
    state, steps = diloco.before(0), 2
    models, optimizers = [], []
    for rank in range(2):
        model = diloco.gpt(diloco.SHAPE)
        model.load_state_dict(state)
        models.append(model)
        optimizers.append(torch.optim.AdamW(model.parameters(), diloco.RATE, weight_decay=diloco.WEIGHT_DECAY))
        draw = torch.Generator().manual_seed(1 + rank)
        for step in range(steps):
            optimizers[-1].param_groups[0]["lr"] = diloco.RATE * diloco.learning_rate(step, steps)
            x, target = diloco.draw_batch(diloco.TEXT.train, diloco.SEQUENCES, diloco.SHAPE.length, draw)
            optimizers[-1].zero_grad()
            diloco.token_loss(model(x), target).backward()
            optimizers[-1].step()
    whole = diloco.gpt(diloco.SHAPE)
    whole.load_state_dict(state)
    with torch.no_grad():
        for p, a, b in zip(whole.parameters(), *(model.parameters() for model in models), strict=True):
            change = p - (a + b) / 2
            p -= diloco.OUTER_RATE * (1 + diloco.OUTER_MOMENTUM) * change  # Nesterov's first step
    found = diloco.train(state, 0, replicas=2, steps=steps, period=2, outer=True)
    assert found["steps"][-1] == steps and found["losses"][-1] == pytest.approx(diloco.validate(whole), abs=2e-5)
