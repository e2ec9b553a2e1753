"""What makes collectives fast: segments, all-reduces that proceed during other work, memory that ranks share.

The algorithms in their plain form, one in each file, are in `mpcourse.collectives`.
"""
