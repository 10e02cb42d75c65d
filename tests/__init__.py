"""Tests of ctagd_optax and its benchmarks."""
