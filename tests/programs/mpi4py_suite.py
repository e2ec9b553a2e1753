"""mpi4py's own tests on virtual ranks: `python mpi4py_suite.py FOLDER SIZE [MODULE ...]`, FOLDER its `test`.

Prints a line of JSON for each test: its name, what became of it, and why. Each module runs in a process of its own,
each test in a run of its own, in which every rank imports the module anew, as every process would.
"""

import builtins
import functools
import json
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
import types
import unittest
from pathlib import Path

from mpcourse.virtual import MPI, ClusterError, run
from mpcourse.virtual.ranks.refused import NotOffered, stub

SECONDS = 20  # of CPU, for one test
OF_FILES = {"test_mpiabi", "test_mpiapi", "test_package"}  # what lies in mpi4py's folder, and which MPI that loads
REFUSED = ("DLPack", "FakeGPU")
EAGER = 1 << 16  # as real MPIs have it: many of these tests send to themselves


def names(folder, modules):
    """All tests as the real mpi4py has them, by module: (class, method) each."""
    code = """
import json, sys, unittest
sys.path.insert(0, sys.argv[1])
def flat(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from flat(each)
        else:
            yield each
found = {}
for module in sys.argv[2:]:
    tests = unittest.defaultTestLoader.loadTestsFromName(module)
    found[module] = [(type(t).__name__, t._testMethodName) for t in flat(tests)]
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code, folder, *modules], capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


class Importer:
    """How one rank imports the files of the suite: each for itself, as processes do."""

    def __init__(self, folder):
        self.folder, self.modules = Path(folder), {}
        self.builtins = {**vars(builtins), "__import__": self.load}

    def load(self, name, *args):
        if not (self.folder / f"{name}.py").exists():
            return __import__(name, *args)
        if name not in self.modules:
            self.modules[name] = self.anew(name)
        return self.modules[name]

    def anew(self, name):
        module = types.ModuleType(name)
        vars(module).update(__builtins__=self.builtins, __file__=str(self.folder / f"{name}.py"))
        exec(source(module.__file__), vars(module))
        if name == "arrayimpl":  # its tests take all kinds of arrays at once, also those that virtual ranks refuse
            module.ArrayBackends[:] = [b for b in module.ArrayBackends if not b.__name__.startswith(REFUSED)]
        return module


@functools.cache
def source(file):
    return compile(Path(file).read_text(), file, "exec")


def program_of(importers, module, case, method):
    """Do what a rank does: import the module, then run one test of it."""

    def program(comm):
        cls = getattr(importers[comm.rank].anew(module), case)
        function = getattr(cls, method)
        for each in (cls, function):
            if getattr(each, "__unittest_skip__", False):
                raise unittest.SkipTest(each.__unittest_skip_why__)
        cls.setUpClass()
        test = cls(method)
        test.setUp()
        function(test)
        test.tearDown()
        test.doCleanups()
        cls.tearDownClass()

    return program


def judge(program, size):
    """Return the outcome of a test on virtual ranks, and why: right, skipped, refused or wrong."""
    try:
        run(program, size, eager=EAGER)
    except BaseException as error:
        # Of what an MPI does not implement its tests tell in words of their own.
        refusal = error
        while refusal is not None and not isinstance(refusal, NotOffered | ClusterError):
            refusal = refusal.__context__
        if refusal is not None:
            return "refused", told(refusal)
        if isinstance(error, unittest.SkipTest):
            return "skipped", str(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "wrong", f"{told(error)} ({os.path.basename(last.filename)}:{last.lineno})"
    return "right", ""


def told(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def tests_of(module, folder, size, tests, begin, out):
    """Judge the tests of a module from number `begin` on; a line for each."""
    importers = [Importer(folder) for _ in range(size)]
    with MPI.as_mpi4py():
        imported = judge(lambda comm: importers[comm.rank].anew(module), size)
        for n in range(begin, len(tests)):
            used = resource.getrusage(resource.RUSAGE_SELF)
            most = int(used.ru_utime + used.ru_stime) + SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            case, method = tests[n]
            outcome, why = imported
            if outcome == "right":
                outcome, why = judge(program_of(importers, module, case, method), size)
            os.write(out, json.dumps([f"{module}.{case}.{method}", outcome, why]).encode() + b"\n")


def apart(module, folder, size, tests):
    """Do the same in new processes, as many as tests end one."""
    done = 0
    while done < len(tests):
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.close(read)
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                tests_of(module, folder, size, tests, done, write)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        told = b""
        while select.select([read], [], [], 3 * SECONDS)[0] and (came := os.read(read, 1 << 16)):
            *lines, told = (told + came).split(b"\n")
            for line in lines:
                print(line.decode(), flush=True)
                done += 1
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if done < len(tests):
            print(json.dumps([".".join([module, *tests[done]]), "wrong", f"it did not end: {status}"]), flush=True)
            done += 1


if __name__ == "__main__":
    folder, size, *modules = sys.argv[1:]
    modules = modules or sorted({p.stem for p in Path(folder).glob("test_*.py")} - OF_FILES)
    found = names(folder, modules)
    sys.path.insert(0, folder)
    stub()  # is read once, and not in each process
    for module in modules:
        apart(module, folder, int(size), found[module])
