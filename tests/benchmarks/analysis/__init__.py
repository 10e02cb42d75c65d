"""Tests of benchmarks/analysis."""
