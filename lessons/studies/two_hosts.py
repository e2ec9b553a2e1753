"""Measure again what lesson 08 shows of two hosts, on one machine: `python -m lessons.studies.two_hosts`.

The hosts are namespaces of this machine, which needs two cores, root and `make hosts`. Ranks on two hosts have a core
each, as ranks on one host have, and a link of 1 Gbit/s between them.
"""

import json
import sys

from mpcourse.common.quiet import noise, refuse_if_busy
from mpcourse.course.bench.two_hosts import MEASURED
from tests.hosts import LINK, hosts

SETTING = f"two hosts made of network namespaces on one machine, an sshd each, joined by a bridge; tc tbf {LINK}"

if __name__ == "__main__":
    measured = noise()
    refuse_if_busy(measured)
    with hosts(2) as (a, _):
        command = ["-m", "mpcourse.course.cli", "bench", "two-hosts", "--hosts", "a,b", "--runs", "15", "--json"]
        done = a.run(sys.executable, "-P", *command, timeout=600)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(done.stdout)
    MEASURED.write_text(json.dumps({"setting": SETTING, "noise": measured._asdict(), **found}, indent=1) + "\n")
    for record in found["records"]:
        print(f"{record['what']}: {record['median']:.2f} {record['unit']}")
