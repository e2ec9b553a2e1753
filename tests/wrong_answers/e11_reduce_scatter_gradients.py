"""Wrong answers to e11_reduce_scatter_gradients. What a cell holds is told in tests/answers.py."""
