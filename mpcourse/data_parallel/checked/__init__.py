"""Checks that report where ranks disagree, instead of waiting without end or summing what does not belong together."""
