"""What makes collectives fast: segments, all-reduces that go on meanwhile, memory that ranks share.

The algorithms as they are read, one file each, are in `mpcourse.collectives`.
"""
