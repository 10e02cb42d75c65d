"""Training a workload: configuration, step, run, loop, devices, checkpoints, logs."""
