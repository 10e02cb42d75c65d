"""Writes small sets in the formats of the official files, as Python 2 wrote them."""

import csv
import gzip
import json
import struct
from pathlib import Path

import numpy as np
from PIL import Image


class Sparse:
    """A matrix to be pickled as SciPy's csr_matrix."""

    def __init__(self, dense: np.ndarray):
        self.dense = dense


class Lists(dict):
    """A dict to be pickled as a defaultdict(list)."""


def global_(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def pickled(value) -> bytes:
    """A pickle in protocol 2."""
    return b"\x80\x02" + _emit(value) + b"."


def _emit(value) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, str | bytes):
        raw = value.encode("latin1") if isinstance(value, str) else value
        return b"T" + struct.pack("<i", len(raw)) + raw
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_emit, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_emit, value)) + b"e"
    if isinstance(value, dict):
        start = b"}"
        if isinstance(value, Lists):
            factory = global_("__builtin__", "list")
            start = global_("collections", "defaultdict") + factory + b"\x85R"
        items = b"".join(_emit(k) + _emit(v) for k, v in value.items())
        return start + b"(" + items + b"u"
    if isinstance(value, np.ndarray):
        return array(value.shape, value.dtype.str[1:], value.tobytes())
    if isinstance(value, Sparse):
        rows, columns = np.nonzero(value.dense)
        counts = np.bincount(rows, minlength=len(value.dense))
        state = {
            "_shape": value.dense.shape,
            "data": value.dense[rows, columns].astype("<f4"),
            "indices": columns.astype("<i4"),
            "indptr": np.concatenate([[0], np.cumsum(counts)]).astype("<i4"),
        }
        return (
            global_("scipy.sparse.csr", "csr_matrix") + b")\x81" + _emit(state) + b"b"
        )
    raise TypeError(type(value))


def array(shape: tuple[int, ...], code: str, contents: bytes) -> bytes:
    """An array as Python 2 pickles it; nothing is checked."""
    make = (
        global_("numpy.core.multiarray", "_reconstruct")
        + b"("
        + global_("numpy", "ndarray")
        + _emit((0,))
        + _emit("b")
        + b"tR"
    )
    dtype = global_("numpy", "dtype") + _emit((code, 0, 1)) + b"R"
    order = "|" if code.endswith("1") else "<"
    dtype += _emit((3, order, None, None, None, -1, -1, 0)) + b"b"
    state = b"(" + _emit(1) + _emit(shape) + dtype + _emit(False) + _emit(contents)
    return make + state + b"tb"


def pixels(*shape: int) -> np.ndarray:
    """Distinct bytes, as far as they go."""
    return (np.arange(np.prod(shape)) * 37 % 251).astype(np.uint8).reshape(shape)


def cifar10(folder: Path, size: int = 4) -> np.ndarray:
    """Writes the batches; returns all their rows, test last."""
    folder.mkdir(parents=True)
    rows = pixels(6 * size, 3072)
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    for n, name in enumerate(names):
        labels = [(n * size + k) % 10 for k in range(size)]
        batch = {
            "batch_label": name,
            "labels": labels,
            "data": rows[n * size : (n + 1) * size],
            "filenames": [f"{k}.png" for k in range(size)],
        }
        (folder / name).write_bytes(pickled(batch))
    return rows


def cifar100(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, size in (("train", 6), ("test", 3)):
        batch = {
            "fine_labels": [99 - k for k in range(size)],
            "coarse_labels": [0] * size,
            "data": pixels(size, 3072),
        }
        (folder / name).write_bytes(pickled(batch))


def idx(array: np.ndarray) -> bytes:
    return struct.pack(
        f">{1 + array.ndim}i", 0x0800 + array.ndim, *array.shape
    ) + bytes(array)


def mnist(folder: Path, packed: bool = True) -> None:
    folder.mkdir(parents=True)
    for part, size in (("train", 20), ("t10k", 10)):
        labels = np.arange(size, dtype=np.uint8) % 10
        for name, array in (
            (f"{part}-images-idx3-ubyte", pixels(size, 28, 28)),
            (f"{part}-labels-idx1-ubyte", labels),
        ):
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))


def tiny_imagenet(folder: Path) -> None:
    """Two classes; in train the second image of each is grey."""
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    for n, name in enumerate(("n01", "n02")):
        images = folder / "train" / name / "images"
        images.mkdir(parents=True)
        Image.new("RGB", (64, 64), (200, 100, 50 * n)).save(images / f"{name}_0.JPEG")
        Image.new("L", (64, 64), 90 + n).save(images / f"{name}_1.JPEG")
    rows = []
    for n in range(3):
        Image.new("RGB", (64, 64), (10 * n,) * 3).save(
            folder / "val" / "images" / f"val_{n}.JPEG", quality=95
        )
        rows.append(f"val_{n}.JPEG\tn0{1 + n % 2}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))


PLANETOID_TEST = (512, 510, 513)


def planetoid(folder: Path, name: str = "citeseer") -> None:
    """10 nodes to train, 500 to validate, 3 to test; node 511 is left out."""
    folder.mkdir(parents=True)
    features = np.zeros((510, 5), np.float32)
    features[np.arange(510), np.arange(510) % 5] = 1
    classes = np.eye(2, dtype=np.int32)
    labels = classes[np.arange(510) % 2]
    test = np.float32([[0, 0, 0, 0, 2], [0, 0, 0, 3, 0], [4, 0, 0, 0, 0]])
    # Edges in one direction, in both, twice, and a loop.
    edges = Lists({0: [1, 2, 2], 1: [0], 3: [3], 513: [0], 2: []})
    contents = {
        "x": Sparse(features[:10]),
        "y": labels[:10],
        "allx": Sparse(features),
        "ally": labels,
        "tx": Sparse(test),
        "ty": classes[[1, 1, 0]],
        "graph": edges,
    }
    for kind, value in contents.items():
        (folder / f"ind.{name}.{kind}").write_bytes(pickled(value))
    (folder / f"ind.{name}.test.index").write_text(
        "".join(f"{n}\n" for n in PLANETOID_TEST)
    )


def facebook(folder: Path, snap: bool = True) -> None:
    folder.mkdir(parents=True)
    kinds = ["tvshow", "company", "politician", "company", "government"]
    prefix = "musae_facebook" if snap else "facebook"
    with (folder / f"{prefix}_target.csv").open("w", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "facebook_id", "page_name", "page_type"])
        for n, kind in enumerate(kinds):
            rows.writerow([n, 10**12 + n, 'Überall, "quoted"', kind])
    (folder / f"{prefix}_edges.csv").write_text("id_1,id_2\n0,1\n1,0\n2,2\n4,0\n")
    words = {"3": [0, 6], "0": [1], "1": [], "2": [2, 2], "4": [5]}
    name = "musae_facebook_features.json" if snap else "facebook.json"
    (folder / name).write_text(json.dumps(words))


def reddit(folder: Path) -> None:
    folder.mkdir(parents=True)
    np.savez_compressed(
        folder / "reddit_data.npz",
        feature=np.arange(12.0).reshape(4, 3),
        label=np.array([2, 0, 1, 2]),
        node_types=np.array([1, 3, 2, 1]),
        node_ids=np.arange(4),
    )
    np.savez_compressed(
        folder / "reddit_graph.npz",
        format=np.array(b"coo"),
        shape=np.array([4, 4]),
        row=np.array([0, 1, 1, 2], np.int32),
        col=np.array([1, 0, 2, 1], np.int32),
        data=np.ones(4),
    )
