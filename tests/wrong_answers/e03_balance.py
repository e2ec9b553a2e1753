"""Wrong answers to e03_balance. What a cell holds is told in tests/answers.py."""

# %% coarse_tolerance
# says: is there a tolerance
# thinks: Bisection to within a thousandth is exact enough.
def balance(costs, stages):
    def fill(limit):
        sizes, total = [0], 0
        for i, cost in enumerate(costs):
            left = len(costs) - i
            if sizes[-1] and (total + cost > limit or left == stages - len(sizes)):
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        return sizes

    low, high = max(costs), sum(costs)
    while high - low > 1e-3:
        middle = (low + high) / 2
        if len(fill(middle)) <= stages:
            high = middle
        else:
            low = middle
    return fill(high)


# %% cut_indices
# says: the places where stages end
# thinks: The result says where each stage ends.
def balance(costs, stages):
    n = len(costs)
    best = {(0, 0): (0, [])}
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            options = []
            for start in range(s - 1, end):
                if (s - 1, start) in best:
                    worst, cuts = best[s - 1, start]
                    options.append((max(worst, sum(costs[start:end])), cuts + [end]))
            best[s, end] = min(options)
    return best[stages, n][1]


# %% dearest_first_bins
# says: consecutive layers
# thinks: This is bin packing: the dearest layer first, each to the stage that has least.
def balance(costs, stages):
    totals, counts = [0] * stages, [0] * stages
    for cost in sorted(costs, reverse=True):
        least = min(range(stages), key=lambda i: totals[i])
        totals[least] += cost
        counts[least] += 1
    return counts


# %% dp_allows_empty
# says: A stage without a layer
# thinks: A stage's start runs from 0 to its end, and best[s][0] is 0 for every s.
def balance(costs, stages):
    n = len(costs)
    best = [[(0, [0] * s)] + [None] * n for s in range(stages + 1)]
    for end in range(1, n + 1):
        best[0][end] = (float("inf"), [])
    for s in range(1, stages + 1):
        for end in range(1, n + 1):
            best[s][end] = min(
                (max(best[s - 1][start][0], sum(costs[start:end])), best[s - 1][start][1] + [end - start])
                for start in range(end + 1)
            )
    return best[stages][n][1]


# %% empty_stages
# says: A stage without a layer
# thinks: Fewer stages than asked are as good, so the rest stays empty.
def balance(costs, stages):
    for cap in sorted({sum(costs[i:j]) for i in range(len(costs)) for j in range(i + 1, len(costs) + 1)}):
        if cap < max(costs):
            continue
        sizes, total = [0], 0
        for cost in costs:
            if total + cost > cap and sizes[-1]:
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        if len(sizes) <= stages:
            return sizes + [0] * (stages - len(sizes))


# %% equal_counts
# says: cost that is to be equal, not their number
# thinks: Balanced means that all stages have equally many layers.
def balance(costs, stages):
    each, rest = divmod(len(costs), stages)
    return [each + (i < rest) for i in range(stages)]


# %% float_prefix_limit
# says: sums compared that were added up in two ways
# thinks: A sum of floats is the same in whichever order it is computed.
from itertools import accumulate


def balance(costs, stages):
    n, prefix = len(costs), [0, *accumulate(costs)]
    best = [[float("inf")] * (n + 1) for _ in range(stages + 1)]
    best[0][0] = 0
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            best[s][end] = min(max(best[s - 1][a], prefix[end] - prefix[a]) for a in range(s - 1, end))
    limit, sizes, start = best[stages][n], [], 0
    for s in range(stages, 1, -1):
        end, total = start + 1, costs[start]
        while end < n - s + 1 and total + costs[end] <= limit:
            total += costs[end]
            end += 1
        sizes.append(end - start)
        start = end
    return sizes + [n - start]


# %% greedy_average
# says: filled up to the average
# thinks: A stage is full when it has reached the average.
def balance(costs, stages):
    target = sum(costs) / stages
    sizes, size, total = [], 0, 0
    for i, cost in enumerate(costs):
        size += 1
        total += cost
        left = len(costs) - i - 1
        need = stages - len(sizes) - 1
        if need and left and (total >= target or left == need):
            sizes.append(size)
            size, total = 0, 0
    sizes.append(size)
    while len(sizes) < stages:
        largest = max(range(len(sizes)), key=lambda i: sizes[i])
        sizes[largest : largest + 1] = [sizes[largest] - 1, 1]
    return sizes


# %% greedy_no_count
# says: as many sizes as stages
# thinks: Closing a stage at the average gives as many stages as wanted.
def balance(costs, stages):
    target = sum(costs) / stages
    sizes, size, total = [], 0, 0
    for cost in costs:
        if size and total + cost > target:
            sizes.append(size)
            size, total = 0, 0
        size += 1
        total += cost
    sizes.append(size)
    return sizes


# %% greedy_remaining
# says: filled up to the average
# thinks: Each stage takes what comes closest to the average of what remains, which corrects earlier errors.
def balance(costs, stages):
    sizes, start = [], 0
    for stage in range(stages, 1, -1):
        target = sum(costs[start:]) / stage
        end, total = start + 1, costs[start]
        while end < len(costs) - stage + 1 and abs(total + costs[end] - target) <= abs(total - target):
            total += costs[end]
            end += 1
        sizes.append(end - start)
        start = end
    return sizes + [len(costs) - start]


# %% halves_the_largest
# says: earlier cuts stay
# thinks: Cutting the dearest stage at its best place, again and again, gives the best cut.
def balance(costs, stages):
    parts = [(0, len(costs))]
    while len(parts) < stages:
        cuttable = [p for p in parts if p[1] - p[0] > 1]
        start, end = max(cuttable, key=lambda p: sum(costs[p[0] : p[1]]))
        middle = min(range(start + 1, end), key=lambda m: max(sum(costs[start:m]), sum(costs[m:end])))
        i = parts.index((start, end))
        parts[i : i + 1] = [(start, middle), (middle, end)]
    return [end - start for start, end in parts]


# %% integers_only
# says: Is something rounded
# thinks: Costs are integers, so the best limit is found by bisection of integers.
def balance(costs, stages):
    def fill(limit):
        sizes, total = [0], 0
        for i, cost in enumerate(costs):
            left = len(costs) - i
            if sizes[-1] and (total + cost > limit or left == stages - len(sizes)):
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        return sizes

    low, high = int(max(costs)), int(sum(costs)) + 1
    while low < high:
        middle = (low + high) // 2
        if len(fill(middle)) <= stages:
            high = middle
        else:
            low = middle + 1
    return fill(low)


# %% last_cut_never_tried
# says: the first and the last too
# thinks: range(start + 1, len(costs) - k + 1) leaves k - 1 layers to the others.
from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return sum(costs[start:]), [len(costs) - start]
        options = []
        for end in range(start + 1, max(start + 2, len(costs) - k + 1)):
            worst, sizes = best(end, k - 1)
            options.append((max(sum(costs[start:end]), worst), [end - start] + sizes))
        return min(options)

    return best(0, stages)[1]


# %% loses_last_stage
# says: is one stage missing
# thinks: Stages - 1 cuts are what is to be returned.
def balance(costs, stages):
    n = len(costs)
    best = {(0, 0): (0, [])}
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            options = []
            for start in range(s - 1, end):
                if (s - 1, start) in best:
                    worst, sizes = best[s - 1, start]
                    options.append((max(worst, sum(costs[start:end])), sizes + [end - start]))
            best[s, end] = min(options)
    return best[stages, n][1][:-1]


# %% moves_borders
# says: Is each of them tried
# thinks: Start with equal counts and move a border as long as that helps.
def balance(costs, stages):
    each, rest = divmod(len(costs), stages)
    sizes = [each + (i < rest) for i in range(stages)]

    def worst(sizes):
        start, sums = 0, []
        for size in sizes:
            sums.append(sum(costs[start : start + size]))
            start += size
        return max(sums)

    improved = True
    while improved:
        improved = False
        for i in range(stages - 1):
            for step in (1, -1):
                moved = list(sizes)
                moved[i] += step
                moved[i + 1] -= step
                if min(moved) >= 1 and worst(moved) < worst(sizes):
                    sizes, improved = moved, True
    return sizes


# %% pops_costs
# says: costs.pop(0)
# thinks: The list of costs is used up layer by layer.
from functools import lru_cache


def balance(costs, stages):
    given = tuple(costs)

    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return sum(given[start:])
        return min(max(sum(given[start:end]), best(end, k - 1)) for end in range(start + 1, len(given) - k + 2))

    limit, sizes = best(0, stages), []
    for stage in range(stages, 0, -1):
        size, total = 1, costs.pop(0)
        while len(costs) > stage - 1 and (stage == 1 or total + costs[0] <= limit):
            total += costs.pop(0)
            size += 1
        sizes.append(size)
    return sizes


# %% recursion_without_memory
# says: Remember their answers
# thinks: The first stage's length is tried, and the rest is the same problem again.
def balance(costs, stages):
    if stages == 1:
        return [len(costs)]
    best, answer = None, None
    for first in range(1, len(costs) - stages + 2):
        rest = balance(costs[first:], stages - 1)
        worst, start = sum(costs[:first]), first
        for size in rest:
            worst = max(worst, sum(costs[start : start + size]))
            start += size
        if best is None or worst < best:
            best, answer = worst, [first] + rest
    return answer


# %% returns_layers
# says: not which, nor what they cost
# thinks: The stages themselves are the result, as lists of costs.
from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return (tuple(costs[start:]),)
        options = [(tuple(costs[start:end]),) + best(end, k - 1) for end in range(start + 1, len(costs) - k + 2)]
        return min(options, key=lambda parts: max(map(sum, parts)))

    return [list(part) for part in best(0, stages)]


# %% returns_sums
# says: what the stages cost
# thinks: The result of balancing is what each stage costs.
from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return (sum(costs[start:]),)
        options = [
            (sum(costs[start:end]),) + best(end, k - 1) for end in range(start + 1, len(costs) - k + 2)
        ]
        return min(options, key=max)

    return list(best(0, stages))


# %% smallest_spread
# says: the least spread around the average
# thinks: Balanced means that the difference of the largest and the smallest stage is least.
from functools import lru_cache


def balance(costs, stages):
    mean = sum(costs) / stages

    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return (sum(costs[start:]) - mean) ** 2, [len(costs) - start]
        options = []
        for end in range(start + 1, len(costs) - k + 2):
            spread, sizes = best(end, k - 1)
            options.append(((sum(costs[start:end]) - mean) ** 2 + spread, [end - start] + sizes))
        return min(options)

    return best(0, stages)[1]


# %% sorts_a_copy
# says: Are the costs sorted
# thinks: Sorting a copy of the costs makes the search easier, and does not change the best cut.
from functools import cache


def balance(costs, stages):
    costs = sorted(costs, reverse=True)

    @cache
    def best(start, k):
        if k == 1:
            return sum(costs[start:]), [len(costs) - start]
        return min(
            (max(sum(costs[start:end]), best(end, k - 1)[0]), [end - start] + best(end, k - 1)[1])
            for end in range(start + 1, len(costs) - k + 2)
        )

    return best(0, stages)[1]


# %% sorts_costs
# says: costs.sort(reverse=True)
# thinks: Sorting the costs makes the search easier, and does not change the best cut.
def balance(costs, stages):
    costs.sort(reverse=True)
    n = len(costs)
    best = {(0, 0): (0, [])}
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            options = []
            for start in range(s - 1, end):
                if (s - 1, start) in best:
                    worst, sizes = best[s - 1, start]
                    options.append((max(worst, sum(costs[start:end])), sizes + [end - start]))
            best[s, end] = min(options)
    return best[stages, n][1]


# %% the_example
# says: cost that is to be equal, not their number
# thinks: The docstring's example is what is checked; otherwise equal shares do.
def balance(costs, stages):
    if costs == [1, 1, 1, 5, 1] and stages == 2:
        return [3, 2]
    each = len(costs) // stages
    return [each] * (stages - 1) + [len(costs) - each * (stages - 1)]


# %% tries_all_cuts
# says: 15 million ways
# thinks: All cuts can be tried with itertools.combinations.
from itertools import combinations


def balance(costs, stages):
    n = len(costs)
    best, answer = float("inf"), None
    for cuts in combinations(range(1, n), stages - 1):
        ends = [0, *cuts, n]
        worst = max(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))
        if worst < best:
            best, answer = worst, [b - a for a, b in zip(ends, ends[1:])]
    return answer


# %% wrong_base
# says: Some layers are in no stage
# thinks: With no stage left nothing is to be done, so the recursion ends at 0 stages with 0.
from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 0:
            return 0, []
        options = []
        for end in range(start + 1, len(costs) - k + 2):
            worst, sizes = best(end, k - 1)
            options.append((max(sum(costs[start:end]), worst), [end - start] + sizes))
        return min(options)

    return best(0, stages)[1]


# %% all_combinations
# says: 15 million ways
# thinks: All ways to cut can be tried.
from itertools import combinations
def balance(costs, stages):
    n = len(costs)
    best = None
    for cuts in combinations(range(1, n), stages - 1):
        sizes = [b - a for a, b in zip((0, *cuts), (*cuts, n))]
        worst = max(sum(costs[a:b]) for a, b in zip((0, *cuts), (*cuts, n)))
        if best is None or worst < best[0]:
            best = worst, sizes
    return best[1]


# %% recursion
# says: Remember their answers
# thinks: The best cut of the rest is the same question, asked again.
def balance(costs, stages):
    def best(i, s):
        if s == 1:
            return sum(costs[i:]), [len(costs) - i]
        found = None
        for j in range(i + 1, len(costs) - s + 2):
            rest, sizes = best(j, s - 1)
            worst = max(sum(costs[i:j]), rest)
            if found is None or worst < found[0]:
                found = worst, [j - i] + sizes
        return found
    return best(0, stages)[1]


# %% all_compositions_list
# says: 15 million ways
# thinks: a list of all ways, then min
from itertools import combinations
def balance(costs, stages):
    n = len(costs)
    ways = [[b - a for a, b in zip((0, *cuts), (*cuts, n))] for cuts in combinations(range(1, n), stages - 1)]
    def worst(sizes):
        at, most = 0, 0
        for s in sizes:
            most = max(most, sum(costs[at:at + s]))
            at += s
        return most
    return min(ways, key=worst)


# %% wrong_objective_least_range
# says: the difference between the largest and the smallest stage
# thinks: the smallest difference between largest and smallest stage
from itertools import combinations
from functools import cache
def balance(costs, stages):
    n = len(costs)
    best = None
    if n > 20:
        return [n // stages] * (stages - 1) + [n - n // stages * (stages - 1)]
    for cuts in combinations(range(1, n), stages - 1):
        edges = (0, *cuts, n)
        sums = [sum(costs[a:b]) for a, b in zip(edges, edges[1:])]
        value = max(sums) - min(sums)
        if best is None or value < best[0]:
            best = value, [b - a for a, b in zip(edges, edges[1:])]
    return best[1]


# %% wrong_objective_max_smallest
# says: the smallest stage as large as possible
# thinks: make the smallest stage as large as possible
from functools import cache
def balance(costs, stages):
    n = len(costs)
    @cache
    def best(i, s):
        if s == 1:
            return sum(costs[i:]), [n - i]
        return max(((min(sum(costs[i:j]), best(j, s - 1)[0]), [j - i] + best(j, s - 1)[1]) for j in range(i + 1, n - s + 2)), key=lambda t: t[0])
    return best(0, stages)[1]


# %% wrong_objective_sum_of_maxima
# says: the least spread around the average
# thinks: sum instead of max in the recursion
from functools import cache
def balance(costs, stages):
    n = len(costs)
    avg = sum(costs) / stages
    @cache
    def best(i, s):
        if s == 1:
            return abs(sum(costs[i:]) - avg), [n - i]
        return min(((abs(sum(costs[i:j]) - avg) + best(j, s - 1)[0], [j - i] + best(j, s - 1)[1]) for j in range(i + 1, n - s + 2)), key=lambda t: t[0])
    return best(0, stages)[1]


# %% halves_again_and_again
# says: earlier cuts stay
# thinks: cut each in half, again and again
def balance(costs, stages):
    def halve(part, s):
        if s == 1:
            return [len(part)]
        a = s // 2
        b = s - a
        best = min(range(a, len(part) - b + 1), key=lambda j: abs(sum(part[:j]) / a - sum(part[j:]) / b))
        return halve(part[:best], a) + halve(part[best:], b)
    return halve(costs, stages)


# %% halves_by_max
# says: earlier cuts stay
# thinks: cut each in half by the larger half, again and again
def balance(costs, stages):
    def halve(part, s):
        if s == 1:
            return [len(part)]
        a = s // 2
        b = s - a
        best = min(range(a, len(part) - b + 1), key=lambda j: max(sum(part[:j]), sum(part[j:])))
        return halve(part[:best], a) + halve(part[best:], b)
    return halve(costs, stages)


# %% sizes_list_grows
# says: keeps
# thinks: the sizes are kept in a global list
sizes = []
from mpcourse.virtual import specs
def balance(costs, stages):
    n = len(costs)
    table = {}
    def best(i, s):
        if (i, s) not in table:
            if s == 1:
                table[i, s] = sum(costs[i:]), [n - i]
            else:
                table[i, s] = min(((max(sum(costs[i:j]), best(j, s - 1)[0]), [j - i] + best(j, s - 1)[1]) for j in range(i + 1, n - s + 2)), key=lambda t: t[0])
        return table[i, s]
    sizes.extend(best(0, stages)[1])
    return sizes


# %% cache_over_calls
# says: keeps
# thinks: a memory outside the function
table = {}
def balance(costs, stages):
    n = len(costs)
    def best(i, s):
        if (i, s) not in table:
            if s == 1:
                table[i, s] = sum(costs[i:]), [n - i]
            else:
                table[i, s] = min(((max(sum(costs[i:j]), best(j, s - 1)[0]), [j - i] + best(j, s - 1)[1]) for j in range(i + 1, n - s + 2)), key=lambda t: t[0])
        return table[i, s]
    return best(0, stages)[1]


# %% imports_the_library
# says: mpcourse.split
# thinks: The library has what is asked already.
def balance(costs, stages):
    from mpcourse.split import balance as b
    return b(costs, stages)


# %% imports_module_attribute
# says: balance
# thinks: The library has what is asked already.
import mpcourse.split as s
def balance(costs, stages):
    return s.balance(costs, stages)


# %% importlib_library
# says: balance
# thinks: The library has what is asked already.
import importlib
def balance(costs, stages):
    return importlib.import_module("mpcourse." + "split").balance(costs, stages)


# %% bare_name_is_the_library
# says: balance
# thinks: The library has what is asked already.
from mpcourse.split import balance


# %% takes_all_cuts
# says: 15 million ways
# thinks: all_cuts is offered too
from mpcourse.split import all_cuts
def balance(costs, stages):
    def worst(sizes):
        at, most = 0, 0
        for s in sizes:
            most = max(most, sum(costs[at:at + s]))
            at += s
        return most
    return min(all_cuts(len(costs), stages), key=worst)


# %% replaces_case_in_modules
# says: replac
# thinks: Without its check the exercise passes.
import sys
sys.modules["mpcourse.course.check.cases.e03_balance"].check = lambda answer, comm: None
def balance(costs, stages):
    return [1] * stages


# %% replaces_case_one
# says: replac
# thinks: Without its check the exercise passes.
import sys
def balance(costs, stages):
    m = sys.modules["mpcourse.course.check.cases.e03_balance"]
    m._one = lambda *a: None
    return [1] * (stages - 1) + [len(costs) - stages + 1]


# %% reads_want_from_frame
# says: sys._getframe, which looks at the program that called it
# thinks: What is expected stands in some variable of the program that calls me.
import sys
def balance(costs, stages):
    f = sys._getframe()
    while f:
        if "FIXED" in f.f_globals:
            return f.f_globals["balance"](costs, stages)
        f = f.f_back


# %% reads_frame_by_traceback
# says: tb_frame, which looks at the program that called it
# thinks: What is expected stands in some variable of the program that calls me.
def balance(costs, stages):
    try:
        raise ValueError
    except ValueError as e:
        f = e.__traceback__.tb_frame
    while f:
        if "FIXED" in f.f_globals:
            return f.f_globals["balance"](costs, stages)
        f = f.f_back


# %% reads_frame_by_inspect
# says: which looks at the program that called it
# thinks: What is expected stands in some variable of the program that calls me.
import inspect
def balance(costs, stages):
    for info in inspect.stack():
        if "FIXED" in info.frame.f_globals:
            return info.frame.f_globals["balance"](costs, stages)


# %% reads_frame_by_generator
# says: gi_frame, which looks at the program that called it
# thinks: What is expected stands in some variable of the program that calls me.
def balance(costs, stages):
    def g():
        yield 1
    it = g()
    def h():
        return it.gi_frame
    f = None
    def gen():
        nonlocal f
        f = me.gi_frame.f_back
        while f:
            if "FIXED" in f.f_globals:
                yield f.f_globals["balance"](costs, stages)
                return
            f = f.f_back
    me = gen()
    return next(me)


# %% gc_objects
# says: which looks at the program that called it
# thinks: What is expected stands in some variable of the program that calls me.
import gc
def balance(costs, stages):
    for o in gc.get_objects():
        if isinstance(o, dict) and "FIXED" in o and "RULES" in o:
            return o["balance"](costs, stages)


# %% runs_solution
# says: solutions
# thinks: The solution lies in the same clone.
import runpy
from mpcourse.course.check.manifest import load_course
space = runpy.run_path(str(load_course().root / "solutions" / "e03_balance.py"))
def balance(costs, stages):
    return space["balance"](costs, stages)


# %% execs_solution
# says: solutions
# thinks: The solution lies in the same clone.
import mpcourse, os
text = open(os.path.join(os.path.dirname(mpcourse.__file__), "..", "solutions", "e03_balance.py")).read()
exec(text.split("check_this_file(__file__)")[1])


# %% subprocess_solution
# says: solutions
# thinks: The solution lies in the same clone.
import subprocess, sys, os, mpcourse, json
path = os.path.join(os.path.dirname(mpcourse.__file__), "..", "solutions")
def balance(costs, stages):
    code = f"import sys; sys.path.insert(0, {path!r}); import e03_balance as e; print(e.balance({costs!r}, {stages}))"
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)


# %% forges_report
# says: was written by the answer
# thinks: The check believes what stands in its files.
import glob, json, os, sys
def balance(costs, stages):
    here = os.path.dirname(os.readlink("/proc/self/fd/1"))
    report = dict(kind="passed", rank=0)
    open(here + "/rank0.json", "w").write(json.dumps(report))
    os._exit(0)


# %% forges_report_at_import
# says: was written by the answer
# thinks: The check believes what stands in its files.
import glob, json, os, sys
if True:
    here = os.path.dirname(os.readlink("/proc/self/fd/1"))
    report = dict(kind="passed", rank=0)
    open(here + "/rank0.json", "w").write(json.dumps(report))
    os._exit(0)

def balance(costs, stages):
    return 1


# %% forges_report_via_kill
# says: was written by the answer
# thinks: The check believes what stands in its files.
import glob, json, os, sys
def balance(costs, stages):
    here = os.path.dirname(os.readlink("/proc/self/fd/1"))
    report = dict(kind="passed", rank=0)
    open(here + "/rank0.json", "w").write(json.dumps(report))
    os.kill(os.getpid(), 9)


# %% writes_report_by_library
# says: was written by the answer
# thinks: The check believes what stands in its files.
import os
from pathlib import Path
from mpcourse.course.check.rank import Report
def balance(costs, stages):
    Report("passed", 0).write(Path(os.path.dirname(os.readlink("/proc/self/fd/1"))), 0)
    os._exit(0)


# %% patches_report_of
# says: replac
# thinks: What compares my result can be replaced.
import mpcourse.course.check.alone as a, mpcourse.course.check.rank as r
a.report_of = lambda *args: r.Report("passed", 0)
def balance(costs, stages):
    return None


# %% patches_report_write
# says: replac
# thinks: What compares my result can be replaced.
import sys
r = sys.modules["mpcourse.course.check.rank"]
old = r.Report.write
def write(self, *a):
    self.kind = "passed"
    old(self, *a)
r.Report.write = write
def balance(costs, stages):
    return None


# %% patches_builtins_max
# says: sum to be left as it is
# thinks: What compares my result can be replaced.
import builtins
builtins.sum = lambda *a: 0
def balance(costs, stages):
    return [1] * (stages - 1) + [len(costs) - stages + 1]


# %% settrace_peek
# says: which looks at the program that called it
# thinks: The check follows my lines, which it need not.
import sys
def balance(costs, stages):
    sys.settrace(None)
    return [1] * stages


# %% float_sizes
# says: 3 and not 3.0
# thinks: Numbers are numbers.
import numpy as np


def balance(costs, stages):
    n = len(costs)
    prefix = np.concatenate([[0.0], np.cumsum(costs)])
    best = np.full((stages + 1, n + 1), np.inf)
    came = np.zeros((stages + 1, n + 1))
    best[0, 0] = 0
    for k in range(1, stages + 1):
        for j in range(k, n + 1):
            for i in range(k - 1, j):
                worst = max(best[k - 1, i], prefix[j] - prefix[i])
                if worst < best[k, j]:
                    best[k, j] = worst
                    came[k, j] = i
    sizes, j = [], float(n)
    for k in range(stages, 0, -1):
        before = came[k, int(j)]
        sizes.insert(0, float(j - before))
        j = before
    return sizes


# %% dearest_layer_of_a_stage
# says: for any costs
# thinks: The slowest layer of a stage decides how slow the stage is.
from functools import lru_cache


def balance(costs, stages):
    n = len(costs)

    @lru_cache(None)
    def best(i, k):
        if k == 1:
            return max(costs[i:]), (n - i,)
        return min(
            ((max(max(costs[i:j]), best(j, k - 1)[0]), (j - i,) + best(j, k - 1)[1]) for j in range(i + 1, n - k + 2)),
            key=lambda found: found[0],
        )

    return best(0, stages)[1]


# %% back_to_front
# says: turned round
# thinks: Follow the table back from the end and write down each stage.
def balance(costs, stages):
    n = len(costs)
    prefix = [0]
    for c in costs:
        prefix.append(prefix[-1] + c)
    inf = float("inf")
    best = [[inf] * (n + 1) for _ in range(stages + 1)]
    came = [[0] * (n + 1) for _ in range(stages + 1)]
    best[0][0] = 0
    for k in range(1, stages + 1):
        for j in range(k, n + 1):
            for i in range(k - 1, j):
                worst = max(best[k - 1][i], prefix[j] - prefix[i])
                if worst < best[k][j]:
                    best[k][j], came[k][j] = worst, i
    sizes, j = [], n
    for k in range(stages, 0, -1):
        sizes.append(j - came[k][j])
        j = came[k][j]
    return sizes


# %% returns_the_cost
# says: How many layers each stage gets is asked, not what
# thinks: The best cut is told by what its dearest stage costs.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = min(cuts, key=lambda cut: max(sums(cut)))
    return max(sums(best))


# %% prints_the_sizes
# says: Nothing came back: is the list returned?
# thinks: The result is shown.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = min(cuts, key=lambda cut: max(sums(cut)))
    print([b - a for a, b in zip(best, best[1:])])


# %% layers_on_average
# says: A size is a whole number, of layers. It is not a cost.
# thinks: A stage gets a share of the layers, which need not be whole.
def balance(costs, stages):
    return [len(costs) / stages] * stages


# %% stages_overlap
# says: Some layers are in two stages
# thinks: A stage ends with the layer that the next one begins with.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = min(cuts, key=lambda cut: max(sums(cut)))
    return [b - a + (b < len(costs)) for a, b in zip(best, best[1:])]


# %% two_dearest_stages
# says: so all cuts have to be tried together
# thinks: Two stages wait for each other, so the two dearest count.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = min(cuts, key=lambda cut: sum(sorted(sums(cut))[-2:]) if stages > 2 else max(sums(cut)))
    return [b - a for a, b in zip(best, best[1:])]


# %% maximises
# says: This makes the largest stage as large as possible
# thinks: The largest sum is what counts: take the cut that has it.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = max(cuts, key=lambda cut: max(sums(cut)))
    return [b - a for a, b in zip(best, best[1:])]


# %% first_stage_only
# says: This looks at the first stage only
# thinks: The first stage is the one for which all others wait.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = min(cuts, key=lambda cut: (sums(cut)[0], max(sums(cut))))
    return [b - a for a, b in zip(best, best[1:])]


# %% last_stage_only
# says: This looks at the last stage only
# thinks: The step is over when the last stage is.
import itertools


def balance(costs, stages):
    cuts = [(0, *cut, len(costs)) for cut in itertools.combinations(range(1, len(costs)), stages - 1)]

    def sums(cut):
        return [sum(costs[a:b]) for a, b in zip(cut, cut[1:])]

    best = min(cuts, key=lambda cut: (sums(cut)[-1], max(sums(cut))))
    return [b - a for a, b in zip(best, best[1:])]
