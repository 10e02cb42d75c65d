"""What a run is: workload, optimizer, and how it is run."""

import dataclasses
import pathlib

LOGS = ("jsonl", "tensorboard", "wandb")


@dataclasses.dataclass(frozen=True)
class Config:
    """A run.

    Attributes:
      workload: its name, see ``benchmarks.workloads``.
      optimizer: its name and options, see ``benchmarks.specs``.
      out: folder of the run.
      seed: of weights, order and augmentation.
      epochs: epochs to train; None is the workload's number.
      steps: stops after so many steps, within an epoch too; None is at its end.
      batch_size: examples in a batch; None is the workload's number.
      data_dir: folder of the data; None is the environment's.
      download: whether a missing set may be fetched.
      synthetic: trains on a generated set of the workload's shapes.
      part: what to evaluate on: "test", or "validation", which is then set aside from
        the training data.
      dtype: dtype of the network's computation: "float32" or "bfloat16".
      accumulate: parts that a batch is cut into, whose gradients are averaged.
      refresh_batch_stats: training batches from which BatchNorm statistics are taken
        anew after a correction, an epoch's at most; 0 leaves them. 20 batches of 128
        give a mean to 2 % of a standard deviation, for the time of about 7 steps.
      checkpoint_every: steps between checkpoints; None is an epoch. There is one at the
        end of every epoch, too.
      keep: checkpoints to keep.
      devices: devices to use; None is all.
      shard: also spreads parameters and optimizer state over the devices.
      log: where metrics go, of "jsonl", "tensorboard" and "wandb"; metrics.jsonl is
        written whether it is named or not.
    """

    workload: str
    optimizer: str
    out: pathlib.Path
    seed: int = 0
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    data_dir: pathlib.Path | None = None
    download: bool = True
    synthetic: bool = False
    part: str = "test"
    dtype: str = "float32"
    accumulate: int = 1
    refresh_batch_stats: int = 20
    checkpoint_every: int | None = None
    keep: int = 2
    devices: int | None = None
    shard: bool = False
    log: tuple[str, ...] = ("jsonl",)

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "steps",
            "batch_size",
            "checkpoint_every",
            "accumulate",
            "keep",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("seed", "refresh_batch_stats"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be at least 0, got {getattr(self, name)}"
                )
        if self.seed >= 1 << 31:
            raise ValueError(f"seed must be below 2**31, got {self.seed}")
        for name, known in (
            ("part", ("test", "validation")),
            ("dtype", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}; got "
                    f"{getattr(self, name)!r}"
                )
        for name in self.log:
            if name not in LOGS:
                raise ValueError(f"log must be of {', '.join(LOGS)}; got {name!r}")
        if self.synthetic and self.part == "validation":
            raise ValueError("part must be test where the set is synthetic")
