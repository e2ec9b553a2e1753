"""What tells ranks that they disagree, instead of waiting without end or summing up what does not belong together."""
