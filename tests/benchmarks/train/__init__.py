"""Tests of benchmarks/train."""
