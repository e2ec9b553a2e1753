# says: One stage has one list, and it stands in a list too: [[...]]
# thinks: With one stage there is no pipeline, so the answer is simply that stage's list.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in reversed(range(microbatches))]
    if stages == 1:
        return forwards + backwards
    return [forwards + backwards for _ in range(stages)]
