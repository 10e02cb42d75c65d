"""How XLA compiles the tests' programs."""

import importlib.metadata

# Most of the time goes into compiling small programs. Without optimization, and with
# XLA's older emitters, that takes a fifth as long.
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
_VERSION = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:3]))
if _VERSION < (0, 11, 1):  # later ones have no older emitters, and stop at the flag
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
