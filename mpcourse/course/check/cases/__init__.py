"""The check of each exercise, in a module with the exercise's name."""
