"""`mnist`: the files a user has, and the download, against a server on this machine that can misbehave."""

import gzip
import hashlib
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

from mpcourse.common.errors import UserError
from mpcourse.data import download as downloads
from mpcourse.data import handwritten, load, mnist
from mpcourse.data.idx import read_idx

TRAIN, TEST = 30, 12
NAMES = [name for pair in handwritten.MNIST for name in pair]


def idx(array: np.ndarray, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng()  # noise, so that gzip does not make the files tiny
    made = {}
    for (images, labels), count in zip(handwritten.MNIST, (TRAIN, TEST), strict=True):
        made[images] = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
        made[labels] = rng.integers(10, size=count, dtype=np.uint8)
    return made


@pytest.fixture
def folder(tmp_path, arrays):
    """Write the four files, plain."""
    path = tmp_path / "files"
    path.mkdir()
    for name, array in arrays.items():
        (path / name).write_bytes(idx(array))
    return path


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCOURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def assert_holds(data, arrays):
    for part, (images, labels) in zip((data.train, data.test), handwritten.MNIST, strict=True):
        assert part.images.dtype == torch.float32 and part.labels.dtype == torch.int64
        assert torch.equal(part.images, torch.from_numpy(arrays[images]).float().unsqueeze(1) / 255)
        assert part.labels.tolist() == arrays[labels].tolist()


# Files that the user has


def test_mnist_reads_plain_files(folder, arrays):
    data = mnist(folder)
    assert data.name == "mnist" and data.classes == 10
    assert_holds(data, arrays)
    assert_holds(load("mnist", folder=str(folder)), arrays)


def test_mnist_reads_gzip_files_beside_plain_ones_from_the_cache_by_default(cache_folder, folder, arrays):
    for name in NAMES[1:]:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    cache_folder.mkdir()
    folder.rename(cache_folder / "mnist")
    assert_holds(mnist(), arrays)


def test_missing_files_are_named_with_their_folder_and_both_cures(folder):
    (folder / NAMES[1]).unlink()
    (folder / NAMES[2]).unlink()
    with pytest.raises(UserError) as error:
        mnist(folder)
    message = str(error.value)
    assert message.startswith(f"no {NAMES[1]}, {NAMES[2]} (plain or .gz) in {folder}:")
    assert NAMES[0] not in message
    assert "mnist(folder=...)" in message and "mnist(download=True)" in message


@pytest.mark.parametrize("lost", [1, 784, 30 * 784])
def test_a_file_cut_short_tells_the_bytes_expected_and_found(folder, lost):
    path = folder / NAMES[0]
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UserError, match=f"{NAMES[0]} is cut short: 23536 bytes expected, {23536 - lost} found"):
        mnist(folder)


def test_a_file_cut_within_its_header_is_cut_short(tmp_path):
    path = tmp_path / "header"
    path.write_bytes(bytes([0, 0, 8, 3, 0, 0]))
    with pytest.raises(UserError, match="cut short: 16 bytes expected, 6 found"):
        read_idx(path)


def test_a_file_longer_than_its_header_says_is_refused(folder):
    path = folder / NAMES[3]
    path.write_bytes(path.read_bytes() + b"\1")
    with pytest.raises(UserError, match="too long: 20 bytes expected, 21 found"):
        mnist(folder)


@pytest.mark.parametrize("data", [b"", b"\0\0\x08", b"<!DOCTYPE html>", b"\0\1\x08\1\0\0\0\0", b"\0\0\x08\0"])
def test_a_file_of_another_format_is_called_not_idx(tmp_path, data):
    (tmp_path / "page").write_bytes(data)
    with pytest.raises(UserError, match="is not an IDX file"):
        read_idx(tmp_path / "page")


def test_elements_other_than_unsigned_bytes_are_refused_by_type(tmp_path):
    (tmp_path / "floats").write_bytes(idx(np.zeros(3, dtype=">f4"), kind=0x0D))
    with pytest.raises(UserError, match="type 0x0d; only 0x08"):
        read_idx(tmp_path / "floats")


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (2, 3, 4), (0, 28, 28)])
def test_read_idx_gives_the_array_that_was_written(tmp_path, shape):
    array = np.random.default_rng().integers(256, size=shape, dtype=np.uint8)
    for name, data in (("plain", idx(array)), ("packed.gz", gzip.compress(idx(array)))):
        (tmp_path / name).write_bytes(data)
        read = read_idx(tmp_path / name)
        assert read.dtype == np.uint8 and read.shape == shape and np.array_equal(read, array)


def test_a_folder_in_place_of_a_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UserError, match=f"cannot read {tmp_path}"):
        read_idx(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "header"])
def test_damaged_gzip_is_named_as_such(tmp_path, damage):
    packed = bytearray(gzip.compress(idx(np.random.default_rng().integers(256, size=5000, dtype=np.uint8))))
    if damage == "cut":
        del packed[-500:]
    elif damage == "flipped":
        packed[-6] ^= 1  # in the checksum of the data
    else:
        packed[2] = 99
    (tmp_path / "packed.gz").write_bytes(packed)
    with pytest.raises(UserError, match=r"packed.gz is a damaged gzip file"):
        read_idx(tmp_path / "packed.gz")


def test_images_and_labels_of_different_number_are_refused(folder):
    (folder / NAMES[3]).write_bytes(idx(np.zeros(TEST + 1, dtype=np.uint8)))
    with pytest.raises(UserError, match=f"{NAMES[2]} holds 12 images but .*{NAMES[3]} 13 labels"):
        mnist(folder)


def test_a_label_above_9_is_named_with_its_place(folder, arrays):
    arrays[NAMES[1]][[4, 7]] = 10, 200
    (folder / NAMES[1]).write_bytes(idx(arrays[NAMES[1]]))
    with pytest.raises(UserError, match=f"{NAMES[1]}: label 4 is 10"):
        mnist(folder)


def test_swapped_files_are_refused_by_their_dimensions(folder):
    (folder / NAMES[0]).write_bytes((folder / NAMES[1]).read_bytes())
    with pytest.raises(UserError, match=f"{NAMES[0]} has 1 dimensions and 3 are wanted"):
        mnist(folder)


# The download


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`, with byte ranges, and with the one fault that `server.fault` names."""

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.requests.append((self.path.removeprefix("/mnist/"), asked))
        body, fault = server.files.get(self.path.removeprefix("/mnist/")), server.fault
        if body is None:
            return self.send_error(404)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and fault != "ignores ranges" else 0
        if start and start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if fault == "wrong bytes":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault == "another range":
            start = start and start + 1
        rest = body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if fault != "no length":
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if fault == "falls silent":
            self.wfile.write(rest[: len(rest) // 2])
            server.stop.wait(10)
        elif fault == "cuts":
            self.wfile.write(rest[: len(rest) // 2])
        elif fault == "slow":
            time.sleep(0.2)
            self.wfile.write(rest)
        else:
            self.wfile.write(rest)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(arrays):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files = {f"{name}.gz": gzip.compress(idx(array)) for name, array in arrays.items()}
    server.sums = {name: hashlib.sha256(data).hexdigest() for name, data in server.files.items()}
    server.requests, server.fault, server.stop = [], None, threading.Event()
    server.mirror = f"http://127.0.0.1:{server.server_port}/mnist/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.stop.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def fetch(server, tmp_path):
    """Fetch the first file alone; gives its path."""

    def fetch(timeout=5.0):
        downloads.download(server.mirror + IMAGES, tmp_path / IMAGES, server.sums[IMAGES], timeout)
        return tmp_path / IMAGES

    return fetch


IMAGES = f"{NAMES[0]}.gz"
PART = f"{IMAGES}.part"


def files_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_a_download_brings_the_four_files_whole_into_the_cache(server, arrays, cache_folder):
    data = mnist(download=True, mirror=server.mirror, checksums=server.sums)
    assert_holds(data, arrays)
    assert {path.name: path.read_bytes() for path in (cache_folder / "mnist").iterdir()} == server.files
    assert sorted(server.requests) == sorted((name, None) for name in server.files)


def test_a_second_call_downloads_nothing(server, arrays):
    for _ in range(2):
        mnist(download=True, mirror=server.mirror, checksums=server.sums)
    assert len(server.requests) == 4
    assert_holds(mnist(), arrays)


def test_only_the_missing_file_is_downloaded_and_the_mirror_needs_no_slash(server, arrays, folder):
    (folder / NAMES[2]).unlink()
    data = mnist(folder, download=True, mirror=server.mirror.rstrip("/"), checksums=server.sums)
    assert_holds(data, arrays)
    assert server.requests == [(f"{NAMES[2]}.gz", None)]


def test_the_checksums_in_the_code_are_those_of_the_four_files():
    assert list(handwritten.CHECKSUMS) == [f"{name}.gz" for name in NAMES]
    assert all(len(bytes.fromhex(value)) == 32 for value in handwritten.CHECKSUMS.values())


def test_without_other_checksums_a_false_mnist_is_refused(server, cache_folder):
    with pytest.raises(UserError, match=f"SHA-256 {server.sums[IMAGES]}, not {handwritten.CHECKSUMS[IMAGES]}"):
        mnist(download=True, mirror=server.mirror)
    assert list((cache_folder / "mnist").iterdir()) == []


def test_a_download_that_was_cut_leaves_only_a_part_and_the_next_call_asks_for_the_rest(server, arrays, cache_folder):
    server.fault = "cuts"
    with pytest.raises(UserError, match=f"lost the connection.*run it again to go on from {PART}"):
        mnist(download=True, mirror=server.mirror, checksums=server.sums)
    whole = server.files[IMAGES]
    half = len(whole) // 2
    assert files_in(cache_folder / "mnist") == [PART]
    assert (cache_folder / "mnist" / PART).read_bytes() == whole[:half]

    server.fault = None
    server.requests.clear()
    assert_holds(mnist(download=True, mirror=server.mirror, checksums=server.sums), arrays)
    assert server.requests[0] == (IMAGES, f"bytes={half}-")
    assert [asked for _, asked in server.requests[1:]] == [None, None, None]
    assert {path.name: path.read_bytes() for path in (cache_folder / "mnist").iterdir()} == server.files


def test_a_download_that_is_cut_every_time_ends_in_the_end(server, fetch, tmp_path):
    server.fault = "cuts"
    for _ in range(100):
        try:
            fetch()
            break
        except UserError:
            assert files_in(tmp_path) == [PART]
        if (tmp_path / PART).stat().st_size == len(server.files[IMAGES]) - 1:
            server.fault = None  # half of one byte is none
    assert (tmp_path / IMAGES).read_bytes() == server.files[IMAGES]
    assert len(server.requests) > 5


@pytest.mark.parametrize("fault, requests", [("ignores ranges", 1), ("another range", 2)])
def test_a_server_that_does_not_send_the_range_asked_for_is_read_from_the_start(
    server, fetch, tmp_path, fault, requests
):
    server.fault = fault
    (tmp_path / PART).write_bytes(server.files[IMAGES][:100])
    assert fetch().read_bytes() == server.files[IMAGES]
    assert server.requests[0] == (IMAGES, "bytes=100-") and len(server.requests) == requests
    assert files_in(tmp_path) == [IMAGES]


def test_a_part_longer_than_the_file_is_thrown_away_after_416(server, fetch, tmp_path):
    (tmp_path / PART).write_bytes(server.files[IMAGES] + b"more")
    assert fetch().read_bytes() == server.files[IMAGES]
    assert [asked for _, asked in server.requests] == [f"bytes={len(server.files[IMAGES]) + 4}-", None]


def test_a_whole_part_needs_no_server(server, fetch, tmp_path):
    (tmp_path / PART).write_bytes(server.files[IMAGES])
    assert fetch().read_bytes() == server.files[IMAGES]
    assert server.requests == [] and files_in(tmp_path) == [IMAGES]


@pytest.mark.parametrize("part", [b"", b"not the beginning of this file"])
def test_a_wrong_checksum_leaves_nothing_behind(server, fetch, tmp_path, part):
    server.fault = "wrong bytes"
    if part:
        (tmp_path / PART).write_bytes(part)
    with pytest.raises(UserError, match="SHA-256"):
        fetch()
    assert files_in(tmp_path) == []
    server.fault = None
    assert fetch().read_bytes() == server.files[IMAGES]


def test_a_server_that_tells_no_length_is_believed_if_the_checksum_is_right(server, fetch):
    server.fault = "no length"
    assert fetch().read_bytes() == server.files[IMAGES]


def test_a_server_that_falls_silent_ends_in_an_error_and_a_part(server, fetch, tmp_path):
    server.fault = "falls silent"
    with pytest.raises(UserError, match=r"lost the connection.*timed out"):
        fetch(timeout=0.2)
    assert files_in(tmp_path) == [PART]


def test_a_refusal_tells_the_status_and_the_address(server, fetch):
    del server.files[IMAGES]
    with pytest.raises(UserError, match=f"{server.mirror}{IMAGES}: the server answers 404 Not Found"):
        fetch()


def test_a_server_that_is_not_there_is_a_user_error(tmp_path):
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and it refuses
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UserError, match=r"cannot fetch .*refused"):
            mnist(tmp_path, download=True, mirror=f"http://127.0.0.1:{taken.getsockname()[1]}")


def test_a_mirror_that_is_no_address_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"cannot fetch nowhere/.*name another mirror"):
        mnist(tmp_path, download=True, mirror="nowhere")


def test_a_folder_that_cannot_be_written_is_a_user_error(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*name another folder"):
        mnist(tmp_path / "file" / "mnist", download=True, mirror=server.mirror, checksums=server.sums)


def test_ranks_that_download_at_once_fetch_each_file_once(server, fetch, tmp_path):
    server.fault = "slow"
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch().read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [server.files[IMAGES]] * 4
    assert len(server.requests) == 1
