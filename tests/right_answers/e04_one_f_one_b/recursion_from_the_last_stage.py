# right: recursion over stages on a string of letters: the stage before has one F more in front and its last F less
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    def letters(after):
        if after == 0:
            return "FB" * microbatches
        head, _, tail = ("F" + letters(after - 1)).rpartition("F")
        return head + tail

    def numbered(text):
        count = {"F": -1, "B": -1}
        out = []
        for d in text:
            count[d] += 1
            out.append((d, count[d]))
        return out

    return [numbered(letters(stages - 1 - s)) for s in range(stages)]
