"""Tests of the data of the benchmarks."""
