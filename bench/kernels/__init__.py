"""The matrix kernels alone, beside what the machine can do."""
