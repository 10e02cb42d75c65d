"""Workloads by name: data, model, loss, metric, target, batch size and epochs.

The paper's come first; it does not state batch size and epochs, which are ours. The
CPU-size ones are cut so that a run takes minutes on one core, and say how;
their targets are about 95 % of the best accuracy of SGD as the paper sets it. To add
one, add it to the list, or :func:`register` it.
"""

import difflib
from collections.abc import Callable

import numpy as np
from flax import nnx

from benchmarks import models, tasks
from benchmarks.tasks import Batch, Figures, Workload, from_arrays

__all__ = [
    "WORKLOADS",
    "Batch",
    "Figures",
    "Workload",
    "from_arrays",
    "register",
    "workload",
]


def workload(name: str) -> Workload:
    """The workload of a name; an unknown one is answered with the close ones."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    close = difflib.get_close_matches(name, WORKLOADS)
    advice = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(
        f"unknown workload {name!r}; {advice}there are {', '.join(WORKLOADS)}"
    )


def register(work: Workload) -> None:
    """Makes a workload known by its name.

    Call it when the module is imported, not below ``if __name__ == "__main__"``: the
    processes of a comparison import the module, too.

    Raises:
      ValueError: one of ours has the name.
    """
    if work.name in _OURS:
        raise ValueError(f"name must not be {work.name!r}, which is a workload of ours")
    WORKLOADS[work.name] = work


def _resnet(depth: int, width: int = 16) -> Callable[..., nnx.Module]:
    def make(size, classes, **options):
        return models.ResNet(depth, classes, channels=size[-1], width=width, **options)

    return make


def _wide_resnet(size, classes, **options):
    return models.WideResNet(28, 4, classes, channels=size[-1], **options)


def _deit(**config: int) -> Callable[..., nnx.Module]:
    def make(size, classes, **options):
        return models.DeiT(
            image=size[0], channels=size[-1], classes=classes, **config, **options
        )

    return make


def _mlp(size, classes, **options):
    return models.MLP(int(np.prod(size)), (64, 64), classes, **options)


_CIFAR, _TINY = (32, 32, 3), (64, 64, 3)
_SETS = {
    "cifar10": ("CIFAR-10", _CIFAR, 10),
    "cifar100": ("CIFAR-100", _CIFAR, 100),
    "tiny_imagenet": ("Tiny-ImageNet", _TINY, 200),
}
_NETWORKS = {
    "resnet20": ("ResNet-20", _resnet(20)),
    "wrn28_4": ("WRN-28-4", _wide_resnet),
    "deit12": ("DeiT-12", _deit(patch=8, depth=12, width=192, heads=3)),
}


def _paper(set_name: str, network: str, target: float) -> Workload:
    title, shape, classes = _SETS[set_name]
    label, make = _NETWORKS[network]
    return tasks.images(
        f"{set_name}_{network}",
        f"The paper's {label} on {title}",
        set_name,
        shape,
        classes,
        make,
        target=target,
        epochs=200,
        validation=5_000,
    )


# The paper's targets are its common cutoffs, 5 % below the best accuracy of all.
_ALL = (
    _paper("cifar10", "resnet20", 0.857),
    _paper("cifar100", "resnet20", 0.612),
    _paper("tiny_imagenet", "resnet20", 0.443),
    _paper("cifar10", "wrn28_4", 0.889),
    _paper("cifar100", "wrn28_4", 0.702),
    _paper("tiny_imagenet", "wrn28_4", 0.555),
    _paper("tiny_imagenet", "deit12", 0.304),
    tasks.graph(
        "reddit_graphsage",
        "The paper's two-layer GraphSAGE on Reddit",
        "reddit",
        602,
        41,
        hidden=128,
        fanout=(10, 25),
        target=0.9,
        batch_size=512,
        epochs=60,
    ),
    tasks.images(
        "digits_mlp",
        "scikit-learn's 8×8 digits, all of them; two hidden layers of 64",
        "digits",
        (8, 8, 1),
        10,
        _mlp,
        target=0.92,
        epochs=40,
        validation=300,
        batch_size=64,
        augment=False,
    ),
    tasks.images(
        "fashion_mnist_resnet8",
        "Fashion-MNIST cut to 10,240 images of 14×14; ResNet-8 of width 8",
        "fashion_mnist",
        (14, 14, 1),
        10,
        _resnet(8, 8),
        target=0.8,
        epochs=15,
        validation=2_048,
        augment=False,
        cut={"train": 10_240, "test": 2_000, "resolution": 14},
    ),
    tasks.images(
        "cifar10_small",
        "CIFAR-10 cut to 10,240 images of 16×16; ResNet-8 of width 8",
        "cifar10",
        (16, 16, 3),
        10,
        _resnet(8, 8),
        target=0.39,
        epochs=15,
        validation=2_048,
        cut={"train": 10_240, "test": 2_000, "resolution": 16},
    ),
    tasks.images(
        "cifar10_resnet20_16",
        "CIFAR-10 at 16×16, all of it; the paper's ResNet-20",
        "cifar10",
        (16, 16, 3),
        10,
        _resnet(20),
        target=0.72,
        epochs=15,
        validation=5_000,
        cut={"resolution": 16},
    ),
    tasks.images(
        "cifar100_small",
        "CIFAR-100 cut to 10,000 images of 16×16; ResNet-8 of width 8",
        "cifar100",
        (16, 16, 3),
        100,
        _resnet(8, 8),
        target=0.065,
        epochs=15,
        validation=2_000,
        cut={"train": 10_000, "test": 2_000, "resolution": 16},
    ),
    tasks.images(
        "tiny_imagenet_deit_small",
        "Tiny-ImageNet cut to 20 classes, 5,000 images of 32×32; DeiT of 4 blocks "
        "and width 64",
        "tiny_imagenet",
        (32, 32, 3),
        20,
        _deit(patch=8, depth=4, width=64, heads=2),
        target=0.25,
        epochs=15,
        validation=1_000,
        cut={"train": 5_000, "test": 1_000, "resolution": 32, "classes": 20},
    ),
    tasks.graph(
        "cora_graphsage",
        "Cora's public split (140 nodes to train on); GraphSAGE of width 64",
        "cora",
        1_433,
        7,
        hidden=64,
        fanout=(10, 10),
        target=0.72,
        batch_size=14,
        epochs=30,
        dropout=0.5,
    ),
    tasks.graph(
        "facebook_graphsage",
        "Facebook pages, all of them; GraphSAGE of width 32 on 5×5 neighbours",
        "facebook",
        4_714,
        4,
        hidden=32,
        fanout=(5, 5),
        target=0.89,
        batch_size=128,
        epochs=10,
    ),
    tasks.text(
        "shakespeare_transformer",
        "Tiny Shakespeare cut to 150,000 characters; transformer of width 64, "
        "context 64",
        length=64,
        width=64,
        characters=150_000,
        target=0.26,
        batch_size=32,
        epochs=15,
        validation=15_000,
    ),
)

_OURS = {entry.name: entry for entry in _ALL}
WORKLOADS = dict(_OURS)
