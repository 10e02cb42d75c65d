"""What XLA is told in all tests, whose time goes into compiling small programs.

Without optimization, with XLA's older emitters and without splitting the programs, that
takes a fifth as long.
"""

import importlib.metadata

FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
FLAGS += " --xla_cpu_parallel_codegen_split_count=1"
# XLA aborts at a flag that it does not know; jaxlib 0.11.2 has no older emitters.
if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 11):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
