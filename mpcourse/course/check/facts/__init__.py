"""Facts that the cases of several exercises ask for, one room an idea."""
