"""Training on one device, with which the course begins: the plain loop, and what a step holds in memory."""
