"""Whole programs over ranks that use the library: `mpirun -np N python -m mpcourse.course.examples.NAME` runs one."""
