"""Experiments with CT-AGD: what it does, what it costs, and its controls."""
