# says: That is the mean of the ranks' shares
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

def evaluate(comm, correct, count):
    shares = [s for s in comm.allgather(correct / count if count else None) if s is not None]
    if not shares:
        raise ValueError("no examples")
    return sum(shares) / len(shares)
