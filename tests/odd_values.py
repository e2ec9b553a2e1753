"""Two hundred values that no task asks for, as mistakes and half-written functions return them."""

import collections
import decimal
import fractions
import itertools
import math
import types

import numpy as np
import torch


class EqualsAll:
    """Equal to whatever it is compared with."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = object.__hash__


class EqualsAllEverywhere(EqualsAll):
    """Its attributes, elements and results are so, too."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, key):
        return self

    def __iter__(self):
        return iter([self] * 3)

    def __len__(self):
        return 3

    def __float__(self):
        return 1.0

    def __int__(self):
        return 1

    def __index__(self):
        return 1


def hostile(*methods, base=object, error=RuntimeError):
    """Make an object whose `methods` raise."""

    def refuse(self, *args, **kwargs):
        raise error("this object does not want to be looked at")

    return type("Hostile", (base,), dict.fromkeys(methods, refuse))


class LongList(list):
    """Says that it has more elements than it has."""

    def __len__(self):
        return 10**9


class NotABool:
    def __bool__(self):
        raise ValueError("the truth value is ambiguous")

    def __eq__(self, other):
        return self

    __hash__ = object.__hash__


class Pretends(list):
    """A list of which numpy and torch believe that it is an array."""

    shape, dtype, ndim, nbytes = (3,), np.dtype(float), 1, 24


Point = collections.namedtuple("Point", "x y")


def generator():
    yield from (1, 2, 3)


def fails():
    yield 1
    raise ValueError("in the middle of it")


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


def itself():
    found = [1]
    found.append(found)
    return found


NUMBERS = [
    0, 1, -1, 2, 3, 7, 10**6, 10**30, -(10**30), 1 << 5000, 0.0, -0.0, 0.5, 1.0, 1e308, -1e308, 5e-324,
    math.nan, math.inf, -math.inf, True, False, 1j, complex(math.nan, 0), fractions.Fraction(1, 3),
    decimal.Decimal("0.1"), decimal.Decimal("NaN"), np.int64(3), np.int8(-1), np.uint64(2**63), np.float16(1),
    np.float32(0.5), np.float64(2), np.float64("nan"), np.longdouble(1), np.bool_(True), np.complex64(1j),
    np.datetime64("2020-01-01"), np.timedelta64(1),
]  # fmt: skip
TEXTS = ["", "x", "1", "0.5", "wrong", "\n", "\0", "\ud800", "é" * 1000, "x" * 100_000, b"", b"12", bytearray(b"3"),
         memoryview(b"123")]  # fmt: skip
LISTS = [
    [], [0], [1, 2], [1, 2, 3], [0.5, 0.5], [None], [None, None], [[]], [[], []], [[], [], []], [[], [], [], []], [[0]],
    [[0], [1]], [[1, 2], [3]], [1, [2, [3]]], ["a", "b"], ["F", 0], [("F", 0)], [[("F", 0)]], [[("F", 0)], [("B", 0)]],
    [[("F",)]], [[("F", 0, 0)]], [[("F", "0")]], [[("F", -1)]], [[("F", 10**9)]], [[None]], [[[0, 1], [2]]], [math.nan],
    [10**30], [-1, -1], [True, True], list(range(1000)), [0] * 100_000, nested(50), nested(5000), itself(), LongList(),
    [np.int64(1), np.int64(2)], [np.ones(2)], [torch.ones(2)], [lambda: 1], [object()], [hostile("__eq__")()],
    [hostile("__len__", "__iter__")()], [EqualsAll()], [EqualsAll()] * 3, [EqualsAllEverywhere()] * 4,
]  # fmt: skip
TUPLES = [(), (0,), (1, 2), (1, 2, 3), (None, None), ((), ()), ([], []), ({}, {}), (1, "a", None), Point(1, 2),
          (np.ones(3), np.ones(3)), (torch.ones(2), torch.ones(2)), (lambda x: x, None)]  # fmt: skip
OTHERS = [
    None, Ellipsis, NotImplemented, object(), object, int, list, type, ValueError("x"), ValueError, len,
    lambda: None, lambda *a, **k: None, lambda *a: a, print, math, types.SimpleNamespace(x=1), {}, {1: 2},
    {"a": 1}, {"parameters": 1}, {0: [], 1: []}, {"total": math.nan}, {(): ()}, set(), {1, 2}, frozenset({1}),
    range(3), range(0), range(10**12), collections.deque([1, 2]), collections.Counter("aab"),
    collections.OrderedDict(a=1), collections.defaultdict(list), slice(1, 2), EqualsAll(),
    EqualsAllEverywhere(), NotABool(), Pretends([1, 2, 3]), hostile("__eq__")(), hostile("__len__")(),
    hostile("__iter__")(), hostile("__len__", "__iter__", "__eq__", "__getitem__")(), hostile("__repr__",
    "__str__")(), hostile("__repr__", "__eq__", "__hash__", "__bool__", "__len__")(), hostile("__float__",
    "__int__", "__index__")(), hostile("__getattr__")(), hostile("__getattribute__")(), hostile("__len__",
    base=list)(), hostile("__iter__", base=list)([1]), hostile("__eq__", base=int)(1), hostile("__eq__",
    base=float)(1.0), hostile("__eq__", base=dict)(), hostile("__float__", base=float)(1.0),
    hostile("__repr__", error=SystemExit)(), hostile("__eq__", error=KeyboardInterrupt)(), hostile("__repr__",
    base=list)([1]), hostile("__hash__", base=str)("x"),
]  # fmt: skip
ARRAYS = [
    np.array(1.0), np.array(3), np.empty(0), np.ones(1), np.ones(2), np.ones((2, 3)), np.ones((0, 3)),
    np.full(3, math.nan), np.arange(3), np.array([1, "a", None], object), np.array(["a", "b"]), np.ones(3,
    np.float16), np.ones(3, ">f8"), np.ones(6)[::2], np.ones(2, [("x", int)]), np.ma.masked_array([1, 2],
    [True, False]), np.ones((1, 2)), torch.tensor(1.0), torch.tensor(2), torch.empty(0), torch.ones(1),
    torch.ones(2, 3), torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.bfloat16), torch.ones(2,
    dtype=torch.bool), torch.ones(2, dtype=torch.complex64), torch.ones(2, device="meta"),
    torch.ones(2).to_sparse(), torch.full((2,), math.nan), torch.nn.Linear(2, 2), torch.nn.Sequential(),
    torch.nn.ModuleList(), torch.nn.Parameter(torch.ones(1)), torch.device("cpu"), torch.float32,
    [torch.nn.Linear(2, 2), torch.nn.ReLU()], torch.Size([1, 2]), torch.Generator(),
]  # fmt: skip
MADE = [generator, fails, lambda: iter([1, 2, 3]), lambda: map(int, "12"), lambda: zip([1], [2], strict=True),
        itertools.count, lambda: enumerate("ab"), lambda: (x for x in ())]  # fmt: skip


def odd_values():
    """Functions that return one each, anew at each call where it is used up by being looked at."""
    held = [*NUMBERS, *TEXTS, *LISTS, *TUPLES, *OTHERS, *ARRAYS]
    return [lambda value=value: value for value in held] + MADE
