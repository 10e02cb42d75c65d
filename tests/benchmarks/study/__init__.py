"""Tests of benchmarks/study."""
