"""Random programs on two virtual GPUs and the CPU: allowed and forbidden as on CUDA, and with the CPU's bits."""

import collections
import importlib.util
import os
import random
from pathlib import Path

import pytest
from torchgen.gen import parse_native_yaml
from torchgen.model import DeviceCheckType

PROGRAM = Path(__file__).parents[1] / "programs" / "two_devices.py"
spec = importlib.util.spec_from_file_location("two_devices", PROGRAM)
two_devices = importlib.util.module_from_spec(spec)
spec.loader.exec_module(two_devices)


@pytest.fixture(scope="module")
def native_functions():
    import torchgen

    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    return {str(f.func.name): f for f in parsed.native_functions}


def test_the_tables_rules_are_those_of_torchs_own_table(native_functions):
    for row in two_devices.ROWS:
        if row.aten and row.aten != "copy_" and row.aten != "index_put_":
            checked = native_functions[row.aten].device_check == DeviceCheckType.ExactSame
            assert checked == (row.rule is two_devices.exact), row


@pytest.mark.timeout(300)  # 300 programs: a minute on two cores, more beside other work
def test_random_programs_on_two_devices_are_allowed_and_forbidden_as_on_cuda():
    first = int(os.environ.get("MPCOURSE_SEED", random.randrange(10**9)))
    kinds = collections.Counter()
    for seed in range(first, first + 300):
        fault = two_devices.judge(seed)
        assert fault is None, f"{fault}\nsee it by: python tests/programs/two_devices.py {seed}"
        kinds[bool(two_devices.program(seed)[1])] += 1
    print(f"seeds {first} to {first + 299}: {kinds[False]} allowed, {kinds[True]} forbidden")
    assert min(kinds.values()) > 80
