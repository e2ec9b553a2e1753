"""Virtual GPUs: devices in one process that hold, refuse and cost like real ones."""
