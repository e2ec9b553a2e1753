"""The exercise checker."""

from mpcourse.check.self_check import check_this_file

__all__ = ["check_this_file"]
