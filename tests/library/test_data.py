"""The datasets: `digits`, `glyphs`, `load` and the cache they are kept in. MNIST has a file of its own."""

import hashlib
import os
import random
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from mpcourse.common.errors import UserError
from mpcourse.data import Dataset, Examples, cache, digits, glyphs, handwritten, load, rendered
from tests.conftest import ROOT, imported_by, python


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCOURSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_cache(monkeypatch):
    """Every call makes its images anew, and draws the fonts anew."""
    monkeypatch.setattr(cache, "_read", lambda *_: None)
    monkeypatch.setattr(rendered.fonts, "_drawn", rendered.fonts._drawn.__wrapped__)


def fingerprint(data: Dataset) -> str:
    tensors = [tensor for part in (data.train, data.test) for tensor in part.tensors]
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


def start_python(code: str, **environment: str) -> subprocess.Popen:
    """Run a process with other hash values than this one, to which warnings of users are errors."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        python("-c", f"import warnings; warnings.simplefilter('error', UserWarning)\n{code}"),
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


# One interface


@pytest.mark.parametrize(
    "name, options, side", [("digits", {"test": 1497}, 8), ("glyphs", {"train": 300, "test": 7}, 28)]
)
def test_load_gives_float_images_between_0_and_1_and_whole_labels(name, options, side):
    data = load(name, **options)
    assert data.name == name and data.classes == 10
    assert len(data.train) == 300 and len(data.test) == options["test"]
    for part in (data.train, data.test):
        assert isinstance(part, Examples)
        assert part.images.shape == (len(part), 1, side, side) and part.images.dtype == torch.float32
        assert part.labels.shape == (len(part),) and part.labels.dtype == torch.int64
        assert part.images.min() == 0 and part.images.max() <= 1
        assert set(part.labels.tolist()) <= set(range(10))
    assert data.train.images.max() == 1
    assert set(data.train.labels.tolist()) == set(range(10))


def test_load_of_another_name_says_which_names_there_are():
    with pytest.raises(UserError, match=r"'cifar'.*digits, glyphs, mnist"):
        load("cifar")


def test_a_data_loader_serves_images_with_their_own_labels():
    train = digits().train
    batches = list(DataLoader(train, batch_size=100))
    assert [tuple(images.shape) for images, _ in batches] == [(100, 1, 8, 8)] * 14 + [(37, 1, 8, 8)]
    assert torch.equal(torch.cat([images for images, _ in batches]), train.images)
    assert torch.equal(torch.cat([labels for _, labels in batches]), train.labels)


def test_flat_rows_share_memory_with_the_images():
    train = digits().train
    rows = train.flat()
    assert rows.shape == (1437, 64) and torch.equal(rows[5], train.images[5].flatten())
    assert rows.data_ptr() == train.images.data_ptr()
    assert glyphs(0, 0).train.flat().shape == (0, 784)


def test_repr_tells_the_number_and_shape_of_the_images():
    assert repr(digits().train) == "Examples(1437 images of 1x8x8)"


@pytest.mark.parametrize("wrong", [-1, 2.5, 3.0, "10", True, None])
@pytest.mark.parametrize("function, name", [(glyphs, "train"), (glyphs, "test"), (glyphs, "seed"), (digits, "test")])
def test_sizes_and_seeds_other_than_whole_numbers_are_refused_by_name(function, name, wrong):
    with pytest.raises(UserError) as error:
        function(**{name: wrong})
    assert str(error.value).startswith(f"{name} must be a whole number") and repr(wrong) in str(error.value)


def test_importing_the_package_imports_no_matplotlib_scikit_learn_or_mpi():
    assert imported_by(["mpcourse.data"], "matplotlib", "sklearn", "mpi4py") == []


# digits


@pytest.mark.parametrize("test", [0, 360, 1797])
def test_both_parts_of_digits_are_together_scikit_learns_set(test):
    from sklearn.datasets import load_digits

    data, bunch = digits(test=test), load_digits()
    assert len(data.test) == test
    ours = torch.cat([torch.cat([part.flat(), part.labels[:, None] / 10], dim=1) for part in (data.train, data.test)])
    theirs = torch.from_numpy(np.hstack([bunch.data / 16, bunch.target[:, None] / 10])).float()
    assert sorted(ours.tolist()) == sorted(theirs.tolist())


def test_digits_are_shuffled_by_the_seed_alone():
    assert fingerprint(digits(seed=1)) == fingerprint(digits(seed=1)) != fingerprint(digits(seed=2))


def test_digits_refuses_a_test_part_larger_than_the_set():
    with pytest.raises(UserError, match="0 to 1797, not 1798"):
        digits(test=1798)


def test_digits_reads_scikit_learn_once(monkeypatch):
    first = fingerprint(digits())
    monkeypatch.setattr(handwritten, "_read_scikit_learn", lambda: pytest.fail("read again"))
    assert fingerprint(digits()) == first


# glyphs: determinism


@pytest.mark.parametrize("train, test", [(0, 0), (1, 0), (250, 251), (777, 3)])
def test_any_number_of_glyphs_can_be_asked_for(train, test):
    data = glyphs(train, test)
    assert (len(data.train), len(data.test)) == (train, test)


@pytest.mark.parametrize("few", [1, 249, 250, 251, 500])
def test_the_first_images_of_a_large_set_are_the_small_set(few):
    small, large = glyphs(few, few), glyphs(777, 600)
    for one, other in ((small.train, large.train), (small.test, large.test)):
        assert torch.equal(one.images, other.images[:few]) and torch.equal(one.labels, other.labels[:few])


@pytest.mark.parametrize("threads", [2, 3])
def test_glyphs_do_not_depend_on_the_number_of_threads_and_leave_it_as_it_is(threads, no_cache, one_thread):
    alone = fingerprint(glyphs(600, 300))
    torch.set_num_threads(threads)
    assert fingerprint(glyphs(600, 300)) == alone
    assert torch.get_num_threads() == threads


def test_glyphs_are_the_same_in_another_process(tmp_path):
    code = (
        "import random, torch; random.seed(); torch.seed(); torch.set_num_threads(2)\n"
        "from tests.library.test_data import fingerprint, glyphs; print(fingerprint(glyphs(300, 100, seed=5)))"
    )
    there = start_python(code, MPCOURSE_CACHE=str(tmp_path / "another"), OMP_NUM_THREADS="2")
    assert output(there) == fingerprint(glyphs(300, 100, seed=5))


def test_glyphs_neither_read_nor_disturb_the_global_random_states(no_cache):
    made = []
    for seed in (1, 2):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        made.append(fingerprint(glyphs(300, 10)))
        assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert made[0] == made[1]


def test_glyphs_do_not_depend_on_torch_settings(no_cache):
    plain = fingerprint(glyphs(300, 10))
    torch.set_default_dtype(torch.float64)
    try:
        assert fingerprint(glyphs(300, 10)) == plain
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu"), torch.device("meta"):
        assert fingerprint(glyphs(300, 10)) == plain


def test_seeds_and_splits_give_images_of_their_own():
    one, two, far = (glyphs(500, 500, seed=seed) for seed in (0, 1, 2**32))
    parts = [part for data in (one, two, far) for part in (data.train, data.test)]
    images = {image.tobytes() for part in parts for image in part.images.numpy()}
    assert len(images) == 3000


# glyphs: what they are


def test_classes_of_glyphs_are_about_equally_many():
    counts = torch.bincount(glyphs(5000, 0).train.labels, minlength=10)
    assert counts.min() > 400 and counts.max() < 600  # 500 expected, standard deviation 21


def test_every_face_draws_ten_different_digits_within_the_margin():
    shapes = rendered.fonts.render()
    assert shapes.shape == (len(rendered.fonts.FACES), 10, 56, 56)
    assert len({shape.numpy().tobytes() for shape in shapes.flatten(0, 1)}) == 10 * len(rendered.fonts.FACES)
    ink = shapes.amax(dim=(0, 1)) > 0
    rows, columns = ink.any(1).nonzero(), ink.any(0).nonzero()
    assert (rows.min(), rows.max()) == (7, 48) and columns.min() >= 5 and columns.max() <= 50


def test_a_hidden_layer_reads_glyphs_better_than_a_linear_model(one_thread):
    data = glyphs(5000, 1000)

    def accuracy(*layers: torch.nn.Module) -> float:
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(8):
            for images, labels in zip(data.train.flat().split(50), data.train.labels.split(50), strict=True):
                optimizer.zero_grad()
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
        return (model(data.test.flat()).argmax(1) == data.test.labels).float().mean().item()

    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear = accuracy(torch.nn.Linear(784, 10))
        hidden = accuracy(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    assert linear > 0.65 and linear + 0.05 < hidden < 0.95


# The cache


def forbid_making(monkeypatch):
    monkeypatch.setattr(rendered, "_make", lambda *_: pytest.fail("made again"))


def test_the_second_call_reads_what_the_first_one_kept(monkeypatch, cache_folder):
    first = fingerprint(glyphs(300, 10))
    files = sorted(cache_folder.iterdir())
    assert [file.stat().st_size for file in files] == [64 + 10 * 785, 64 + 300 * 785]
    forbid_making(monkeypatch)
    assert fingerprint(glyphs(300, 10)) == first


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:1000],
        lambda data: b"",
        lambda data: data[:40000] + bytes([data[40000] ^ 1]) + data[40001:],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: bytes(len(data)),
    ],
    ids=["one byte short", "one byte long", "cut", "empty", "one bit of an image", "one bit of the digest", "zeros"],
)
def test_a_damaged_file_is_made_anew_and_mended(damage, monkeypatch, cache_folder):
    first = fingerprint(glyphs(300, 0))
    file = cache_folder / "glyphs-seed0-train-300.bin"
    sound = file.read_bytes()
    file.write_bytes(damage(sound))
    assert fingerprint(glyphs(300, 0)) == first
    assert file.read_bytes() == sound
    forbid_making(monkeypatch)
    assert fingerprint(glyphs(300, 0)) == first


def test_a_file_of_another_version_is_made_anew(monkeypatch, cache_folder):
    glyphs(300, 0)
    file = cache_folder / "glyphs-seed0-train-300.bin"
    old = file.read_bytes()
    monkeypatch.setattr(rendered, "VERSION", rendered.VERSION + 1)
    made = []
    monkeypatch.setattr(rendered, "_make", lambda count, *_: made.append(count) or np.ones(count * 785, dtype=np.uint8))
    assert glyphs(300, 0).train.labels.tolist() == [1] * 300
    assert made == [300, 0] and file.read_bytes() != old


def test_an_array_of_another_size_is_made_anew():
    for size in (5, 6):
        made = np.full(size, size, dtype=np.uint8)
        assert cache.remember("array.bin", "1", size, lambda made=made: made).tolist() == [size] * size


def test_a_file_under_another_name_is_not_taken_for_its_own(cache_folder):
    zero, one = glyphs(300, 0, seed=0), glyphs(300, 0, seed=1)
    (cache_folder / "glyphs-seed0-train-300.bin").replace(cache_folder / "glyphs-seed1-train-300.bin")
    assert fingerprint(glyphs(300, 0, seed=1)) == fingerprint(one) != fingerprint(zero)


def test_what_is_read_from_the_cache_may_be_written_to():
    for _ in range(2):
        train = digits().train
        train.images.zero_()
    assert digits().train.images.max() == 1


def test_a_folder_that_cannot_be_written_costs_one_warning_and_no_failure(monkeypatch, tmp_path):
    first = fingerprint(glyphs(300, 10))
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MPCOURSE_CACHE", str(tmp_path / "file" / "cache"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert fingerprint(glyphs(300, 10)) == first
        assert len(digits().test) == 360
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 1
    assert "MPCOURSE_CACHE" in messages[0] and str(tmp_path / "file" / "cache") in messages[0]


def test_a_write_that_fails_leaves_nothing(monkeypatch, cache_folder):
    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", disk_full)
    with pytest.warns(UserWarning, match="No space left on device"):
        glyphs(300, 10)
    assert list(cache_folder.iterdir()) == []


def test_the_final_name_never_holds_part_of_a_file(monkeypatch, cache_folder):
    replace, sizes = os.replace, []

    def watch(source, target):
        assert not Path(target).exists()
        sizes.append(Path(source).stat().st_size)
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    glyphs(300, 10)
    assert sizes == [64 + 300 * 785, 64 + 10 * 785]


def test_a_writer_that_comes_between_anothers_write_and_move_harms_neither(monkeypatch, cache_folder):
    replace, mine, yours = os.replace, np.full(9, 1, dtype=np.uint8), np.full(9, 2, dtype=np.uint8)

    def meanwhile(source, target):
        monkeypatch.setattr(os, "replace", replace)
        assert cache.remember("array.bin", "2", 9, lambda: yours) is yours
        replace(source, target)

    monkeypatch.setattr(os, "replace", meanwhile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.remember("array.bin", "1", 9, lambda: mine) is mine
    assert cache.remember("array.bin", "1", 9, lambda: yours).tolist() == mine.tolist()
    assert [file.name for file in cache_folder.iterdir()] == ["array.bin"]


def test_processes_that_write_one_file_at_once_do_not_disturb_each_other(cache_folder):
    code = (
        "import numpy as np, sys, time\n"
        "from mpcourse.data import cache\n"
        "mine = np.full(300_000, {number}, dtype=np.uint8)\n"
        "(cache.folder() / 'ready{number}').touch()\n"
        "while len(list(cache.folder().glob('ready*'))) < 2: time.sleep(0.001)\n"
        "for _ in range(60):\n"  # the other's file is of another version, so both write nearly every time
        "    assert np.array_equal(cache.remember('shared.bin', '{number}', 300_000, lambda: mine), mine)\n"
    )
    cache_folder.mkdir()
    for process in [start_python(code.format(number=number)) for number in (1, 2)]:
        output(process)
    assert {file.name for file in cache_folder.iterdir()} == {"ready1", "ready2", "shared.bin"}
    assert (cache_folder / "shared.bin").stat().st_size == 64 + 300_000


def test_the_cache_folder_is_ours_then_xdgs_then_the_homes(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("MPCOURSE_CACHE", "~/own")
    assert cache.folder() == tmp_path / "own"
    monkeypatch.setenv("MPCOURSE_CACHE", "")
    assert cache.folder() == tmp_path / "xdg" / "mpcourse"
    monkeypatch.delenv("MPCOURSE_CACHE")
    assert cache.folder() == tmp_path / "xdg" / "mpcourse"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == tmp_path / ".cache" / "mpcourse"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == tmp_path / ".cache" / "mpcourse"
