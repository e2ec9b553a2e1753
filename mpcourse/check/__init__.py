"""The exercise checker."""

from mpcourse.check.itself import check_this_file

__all__ = ["check_this_file"]
