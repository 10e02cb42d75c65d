"""Sets that are one graph: readers of the official formats."""

import csv
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.data import hashing
from benchmarks.data.containers import Graph
from benchmarks.data.pickles import Matrix, read_pickle

_PUBLIC_VALIDATION = 500
# Facebook's pages are 22,470, and their words 4,714.
_MOST_PAGES, _MOST_WORDS = 1 << 15, 1 << 13
# Reddit's features, or both ends of its edges, have about a gigabyte.
_MOST_NPZ_BYTES = 1 << 32


def adjacency(
    nodes: int, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and neighbours of an undirected graph, from the two ends of its edges.

    An edge given twice, or in both directions, counts once; a loop not at all.
    """
    first, second = (np.asarray(ends, np.int64) for ends in (first, second))
    low, high = np.minimum(first, second), np.maximum(first, second)
    if low.min(initial=0) < 0 or high.max(initial=-1) >= nodes:
        raise ValueError(
            f"edges go from node {low.min()} to {high.max()}, and the nodes are 0 to "
            f"{nodes - 1}"
        )
    # An edge as one number; sorting is much faster than np.unique on many millions.
    edges = (low * nodes + high)[low != high]
    edges.sort()
    edges = edges[np.diff(edges, prepend=-1) != 0]
    low, high = np.divmod(edges, max(nodes, 1))
    both = np.concatenate([edges, high * nodes + low])
    both.sort()
    offsets = np.searchsorted(both, np.arange(nodes + 1) * nodes).astype(np.int64)
    target = both % max(nodes, 1)
    return offsets, target.astype(np.int32)


def read_planetoid(name: str, files: Mapping[str, Path]) -> Graph:
    """Cora, Citeseer or Pubmed with the public split.

    That is 20 nodes a class to train, the next 500 to validate, and those of
    test.index to test. The rows of tx and ty belong to the nodes of test.index, in
    its order. A node between them that it leaves out has no edge, and here no feature
    and label 0.
    """

    def path(kind: str) -> Path:
        return files[f"ind.{name}.{kind}"]

    def read(kind: str, expected: type):
        value = read_pickle(path(kind))
        if not isinstance(value, expected):
            raise ValueError(f"{path(kind)} holds a {type(value).__name__}")
        return value

    x, y = read("x", Matrix), read("y", np.ndarray)
    allx, ally = read("allx", Matrix), read("ally", np.ndarray)
    tx, ty = read("tx", Matrix), read("ty", np.ndarray)
    edges = read("graph", dict)
    try:
        test = np.asarray(path("test.index").read_text().split(), np.int64)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{path('test.index')} is not a list of numbers") from error
    known = len(ally)
    consistent = (
        y.ndim == ally.ndim == ty.ndim == 2
        and y.shape[1] == ally.shape[1] == ty.shape[1]
        and x.shape[1] == allx.shape[1] == tx.shape[1]
        and (x.shape[0], allx.shape[0], tx.shape[0]) == (len(y), known, len(ty))
        and len(test) == len(ty) == len(np.unique(test))
        and test.min(initial=known) == known
        # Citeseer leaves out 15 of the 1,015 between the first and the last.
        and test.max(initial=known) < known + 2 * len(test)
        and known >= len(y) + _PUBLIC_VALIDATION
    )
    if not consistent:
        raise ValueError(
            f"{path('x').parent}: the files of {name} do not belong together"
        )
    nodes = int(test.max()) + 1
    features = np.zeros((nodes, x.shape[1]), np.float32)
    features[:known], features[test] = allx.dense(), tx.dense()
    labels = np.zeros(nodes, np.int32)
    labels[:known], labels[test] = ally.argmax(1), ty.argmax(1)
    try:
        degrees = [len(ends) for ends in edges.values()]
        source = np.repeat(np.asarray(list(edges), np.int64), degrees)
        target = np.asarray([n for ends in edges.values() for n in ends], np.int64)
        offsets, neighbours = adjacency(nodes, source, target)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{path('graph')} is damaged: {error}") from error
    train, validation = np.split(
        np.arange(len(y) + _PUBLIC_VALIDATION, dtype=np.int32), [len(y)]
    )
    return Graph(
        features,
        labels,
        offsets,
        neighbours,
        train,
        validation,
        np.sort(test).astype(np.int32),
        y.shape[1],
    )


def read_facebook(files: Mapping[str, Path]) -> Graph:
    """Pages that like each other, by kind; a feature is a word of the description.

    There is no official split: the hash of a node's number puts it in one of five
    parts, three to train, one to validate and one to test.
    """
    target = files["musae_facebook_target.csv"]
    rows = _table(target, ("id", "page_type"))
    nodes = len(rows)
    try:
        if nodes > _MOST_PAGES:
            raise ValueError(f"it has more than {_MOST_PAGES:,} pages")
        numbers = np.asarray([number for number, _ in rows], np.int64)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{target} is damaged: {error}") from error
    if not nodes or not np.array_equal(np.sort(numbers), np.arange(nodes)):
        raise ValueError(f"{target} does not number its pages from 0 on")
    _, kinds = np.unique([kind for _, kind in rows], return_inverse=True)
    labels = np.empty(nodes, np.int32)
    labels[numbers] = kinds

    path = files["musae_facebook_features.json"]
    try:
        words = {int(k): v for k, v in json.loads(path.read_text("utf-8")).items()}
        source = np.repeat(
            np.asarray(list(words), np.int64), [len(ids) for ids in words.values()]
        )
        listed = [n for ids in words.values() for n in ids]
        if {*map(type, words.values())} - {list} or {*map(type, listed)} - {int}:
            raise ValueError("its words are not lists of numbers")
        columns = np.asarray(listed, np.int64)
        if sorted(words) != list(range(nodes)) or columns.min(initial=0) < 0:
            raise ValueError(f"it does not have the words of {nodes} pages")
        if columns.max(initial=0) >= _MOST_WORDS:
            raise ValueError(f"it has more than {_MOST_WORDS:,} words")
    except (
        AttributeError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    features = np.zeros((nodes, columns.max(initial=-1) + 1), np.float32)
    features[source, columns] = 1

    path = files["musae_facebook_edges.csv"]
    try:
        edges = np.asarray(_table(path, ("id_1", "id_2")), np.int64).reshape(-1, 2)
        offsets, neighbours = adjacency(nodes, edges[:, 0], edges[:, 1])
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    fifth = hashing.below(5, np.arange(nodes))
    train, validation, test = (
        np.flatnonzero(part).astype(np.int32)
        for part in (fifth < 3, fifth == 3, fifth == 4)
    )
    classes = int(labels.max()) + 1
    return Graph(
        features, labels, offsets, neighbours, train, validation, test, classes
    )


def _table(path: Path, columns: tuple[str, str]) -> list[tuple[str, str]]:
    first, second = columns
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [(row[first], row[second]) for row in csv.DictReader(file)]
        # A row that is too short has None at its end.
        if any(None in row for row in rows):
            raise ValueError("a row is too short")
    except (KeyError, ValueError, csv.Error) as error:
        raise ValueError(
            f"{path} is not a table with the columns {first}, {second}: {error!r}"
        ) from error
    return rows


def read_reddit(files: Mapping[str, Path]) -> Graph:
    """Posts that share a reader, by community; the split is by date."""
    data = _npz(files["reddit_data.npz"], ("feature", "label", "node_types"))
    path = files["reddit_graph.npz"]
    graph = _npz(path, ("format", "shape", "row", "col"))
    nodes = len(data["label"])
    if graph["format"].item() not in (b"coo", "coo"):
        raise ValueError(f"{path} is not a sparse matrix in coordinate form")
    if tuple(graph["shape"]) != (nodes, nodes) or data["feature"].shape[0] != nodes:
        raise ValueError(f"{path} is not the graph of {nodes} labelled nodes")
    try:
        offsets, neighbours = adjacency(nodes, graph["row"], graph["col"])
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    train, validation, test = (
        np.flatnonzero(data["node_types"] == kind).astype(np.int32)
        for kind in (1, 2, 3)
    )
    labels = data["label"].astype(np.int32)
    return Graph(
        data["feature"].astype(np.float32),
        labels,
        offsets,
        neighbours,
        train,
        validation,
        test,
        int(labels.max()) + 1,
    )


def _npz(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        # NumPy leaves a file open that it opened itself and cannot read.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            size = sum(entry.file_size for entry in file.zip.infolist())
            if size > _MOST_NPZ_BYTES:
                raise ValueError(f"it unpacks to {size:,} bytes")
            return {name: file[name] for name in names}
    except (
        EOFError,
        KeyError,
        MemoryError,  # an array that claims more than there can be
        NotImplementedError,
        OSError,
        OverflowError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(
            f"{path} is not an archive of {', '.join(names)}: {error}"
        ) from error
