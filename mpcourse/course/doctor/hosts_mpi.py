"""The last stages of hosts: mpirun starts a rank on one, and a message passes between ranks on two."""

import json
import random
import socket
import sys
import threading
from pathlib import Path

from mpcourse.common import launch
from mpcourse.course.doctor.finding import Finding, fatal
from mpcourse.course.doctor.hosts_login import Host
from mpcourse.course.doctor.hosts_ranks import read_facts
from mpcourse.course.doctor.remote import CONNECT

DEADLINE = 20.0  # seconds; a healthy start takes 1 to 2
RANKS = Path(__file__).with_name("hosts_ranks.py")
PORTS = range(1024, 32768)  # below the ones that the system gives to outgoing connections

LISTEN = "import socket; s = socket.create_server(('', %d)); s.settimeout(%d); s.accept()"
TRY = """
import json, os, socket, time
address, port, seconds = %r, %d, %d
address = address or os.environ["SSH_CLIENT"].split()[0]
stop = time.monotonic() + seconds
while True:
    try:
        socket.create_connection((address, port), seconds)
        error = ""
    except OSError as raised:
        error = raised.strerror or str(raised)
        if isinstance(raised, ConnectionRefusedError) and time.monotonic() < stop:  # no process listens yet
            time.sleep(0.1)
            continue
    break
print(json.dumps({"error": error}))
"""
KNOWS = "import json, socket\ntry:\n    socket.gethostbyname(%r)\n    error = ''\n" + (
    "except OSError as raised:\n    error = str(raised)\nprint(json.dumps({'error': error}))"
)

# The first range is the launcher's, the second the ranks'.
KEEP_TO = {
    "Open MPI": "PRTE_MCA_oob_tcp_dynamic_ipv4_ports=50000-50099 "
    "OMPI_MCA_btl_tcp_port_min_v4=50100 OMPI_MCA_btl_tcp_port_range_v4=200",
    "MPICH": "MPIEXEC_PORT_RANGE=50000:50099 UCX_TCP_PORT_RANGE=50100-50299",
}
NETWORK = {"Open MPI": "OMPI_MCA_btl_tcp_if_include=eth0", "MPICH": "UCX_NET_DEVICES=eth0"}


def launcher(host: Host) -> Finding:
    """Whether mpirun, by ssh, starts a rank on the host."""
    topic = f"{host.name}: launcher"
    done = host.way.start_ranks([host.name], [sys.executable, "-P", str(RANKS)], DEADLINE)
    ranks = read_facts(done.output)
    if done.status == 0 and [(one["rank"], one["size"]) for one in ranks] == [(0, 1)]:
        return Finding(topic, f"mpirun started a rank there; that machine calls itself {ranks[0]['host']}")
    why = f"no end within {DEADLINE:g} s" if done.status is None else f"exit status {done.status}: {done.reason}"
    value = f"mpirun started no rank there ({why})"
    own = socket.gethostname()
    if not host.local:
        tells_names = launch.mpirun().implementation != "Open MPI"
        if tells_names and (error := _said(host, KNOWS % own)):
            advice = f"on {host.name}: `echo ADDRESS {own} | sudo tee -a /etc/hosts`, with this machine's address"
            return fatal(topic, f"{value}: it does not know {own}, this machine's name ({error})", advice)
        with socket.create_server(("", 0)) as server:
            error = _said(host, TRY % ("", server.getsockname()[1], CONNECT))
        if error:
            return fatal(topic, f"{value}: it cannot connect to a port of this machine ({error})", _open_ports())
    by_hand = " ".join(launch.hosts_command([host.name], ["hostname"]))
    return fatal(topic, value, f"`{by_hand}` by hand, and mend what it says")


def message(topic: str, one: Host, other: Host) -> Finding:
    """Measure latency and bandwidth between a rank on one host and a rank on another."""
    done = one.way.start_ranks([one.name, other.name], [sys.executable, "-P", str(RANKS)], DEADLINE)
    facts = read_facts(done.output)
    places = [fact["host"] for fact in facts if "host" in fact]
    if len(places) == 2 and len(set(places)) == 1:
        advice = (
            "two names of one machine count as one host; two machines of one name need names of their own: "
            "`sudo hostnamectl hostname NAME`"
        )
        return fatal(topic, f"both ranks are on a machine that calls itself {places[0]}", advice)
    for fact in facts:
        if "latency" in fact and done.status == 0:
            value = f"{fact['latency'] * 1e6:.0f} us each way (8 bytes), {fact['bandwidth'] / 1e6:.0f} MB/s (4 MB)"
            return Finding(topic, value)
    why = f"within {DEADLINE:g} s" if done.status is None else f"(exit status {done.status}: {done.reason})"
    value = f"mpirun started ranks, but no message passed {why}"
    for source, target in ((one, other), (other, one)):
        if error := _blocked(source, target):
            value = f"{value}: {source.name} cannot connect to a port of {target.name} ({error}), a firewall's work"
            return fatal(topic, value, _open_ports())
    advice = (
        "TCP gets through, so MPI may try a network that does not join them (docker0, a VPN): `ip -br addr` lists "
        f"them on each host; name the one that does: `export {_for_this_mpi(NETWORK)}`"
    )
    return fatal(topic, value, advice)


def _open_ports() -> str:
    return (
        f"MPI listens on any port. Keep it to some, `export {_for_this_mpi(KEEP_TO)}`, and open these between the "
        "hosts, on each of them, as with `sudo ufw allow proto tcp from ADDRESS to any port 50000:50299`"
    )


def _for_this_mpi(settings: dict[str, str]) -> str:
    return settings.get(launch.mpirun().implementation, settings["MPICH"])


def _blocked(source: Host, target: Host) -> str:
    """Return why TCP does not reach a free port of `target` from `source`; empty where it does."""
    if not target.address or target.address.startswith("127."):
        return ""  # known here by a name that others do not share
    port = random.choice(PORTS)
    listen = [target.python or sys.executable, "-c", LISTEN % (port, CONNECT)]
    listener = threading.Thread(target=target.run, args=(listen, 2.0 * CONNECT))
    listener.start()
    try:
        return _said(source, TRY % (target.address, port, CONNECT))
    finally:
        listener.join()


def _said(host: Host, program: str) -> str:
    done = host.run([host.python or sys.executable, "-c", program], 3.0 * CONNECT)
    try:
        return json.loads(done.output.splitlines()[-1])["error"]
    except (IndexError, ValueError):
        return ""  # no answer is no proof
