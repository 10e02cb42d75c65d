"""Tests of benchmarks/pages."""
