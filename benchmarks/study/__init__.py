"""Studies: comparisons, tuning, sweeps, ablations and recipes, made of runs."""
