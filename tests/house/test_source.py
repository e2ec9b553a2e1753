"""What lessons show of the library's source."""

import pytest

from mpcourse.collectives import ring_allgather, ring_reduce_scatter
from mpcourse.common.source import reference, without_docstrings
from mpcourse.large_batch.lars import LARS

TEXT = '''
    class A:
        """About A,
        in two lines."""

        def f(self):
            """About f."""
            return "text"  # a comment stays

        def g(self):
            """Only this."""
'''


def test_docstrings_are_left_out_and_all_else_stays_as_it_is():
    assert without_docstrings(TEXT).split("\n") == [
        "",
        "class A:",
        "",
        "    def f(self):",
        '        return "text"  # a comment stays',
        "",
        "    def g(self):",
    ]


def test_a_reference_is_the_source_below_a_link_to_its_file():
    text = reference(ring_reduce_scatter, ring_allgather).data
    assert text.count("[`mpcourse/collectives/ring.py`](../mpcourse/collectives/ring.py)") == 2
    assert "accumulate(theirs, arrived, op)" in text and '"""' not in text
    assert "def step(" in reference(LARS.step).data  # which torch wraps
    with pytest.raises(TypeError):
        reference(len)
    with pytest.raises(ValueError, match="test_source"):
        reference(test_docstrings_are_left_out_and_all_else_stays_as_it_is)
