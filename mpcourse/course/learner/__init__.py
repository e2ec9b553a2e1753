"""A learner's folder: the course outside of a clone, made by `mpcourse init` and renewed by `mpcourse update`."""

from mpcourse.course.learner.folder import init, update

__all__ = ["init", "update"]
