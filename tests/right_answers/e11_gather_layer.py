"""Right answers to e11_gather_layer. What a cell holds is told in tests/answers.py."""
