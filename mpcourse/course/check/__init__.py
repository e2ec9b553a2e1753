"""The exercise checker."""
