"""What tells ranks that they disagree, in place of waiting without end or summing up what does not belong together."""
