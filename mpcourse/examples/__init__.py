"""Whole programs over ranks that use the library: each is run by `mpirun -np N python -m mpcourse.examples.NAME`."""
