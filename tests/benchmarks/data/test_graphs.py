"""Every format of graphs is read exactly, and damage is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import Graph, load
from benchmarks.data.graphs import adjacency
from tests.benchmarks.data import official


def check(graph: Graph):
    nodes = len(graph.labels)
    assert graph.features.shape[0] == nodes
    assert graph.features.dtype == np.float32
    assert graph.labels.dtype == graph.neighbours.dtype == np.int32
    assert graph.offsets.dtype == np.int64
    for part in (graph.train, graph.validation, graph.test):
        assert part.dtype == np.int32
    together = np.concatenate([graph.train, graph.validation, graph.test])
    assert len(np.unique(together)) == len(together)


def neighbours(graph: Graph, node: int) -> list[int]:
    start, end = graph.offsets[node : node + 2]
    return graph.neighbours[start:end].tolist()


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))),
        )
    )
)
def test_adjacency_is_symmetric_and_simple(case):
    nodes, edges = case
    ends = np.asarray(edges, np.int32).reshape(-1, 2)
    offsets, found = adjacency(nodes, ends[:, 0], ends[:, 1])
    expected = [
        sorted({b for a, b in edges + [(b, a) for a, b in edges] if a == n != b})
        for n in range(nodes)
    ]
    assert [
        found[offsets[n] : offsets[n + 1]].tolist() for n in range(nodes)
    ] == expected
    assert offsets[0] == 0
    assert offsets[-1] == len(found)


@pytest.mark.parametrize("bad", [-1, 3])
def test_adjacency_refuses_a_foreign_node(bad):
    with pytest.raises(ValueError, match="the nodes are 0 to 2"):
        adjacency(3, np.asarray([0, 1]), np.asarray([2, bad]))


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_planetoid(tmp_path, name):
    official.planetoid(tmp_path / "planetoid", name)
    graph = load(name, tmp_path, download=False)
    check(graph)
    assert graph.classes == 2
    assert graph.train.tolist() == list(range(10))
    assert graph.validation.tolist() == list(range(10, 510))
    assert graph.test.tolist() == [510, 512, 513]
    # The rows of tx are in the order of test.index: 512, 510, 513.
    assert graph.features[512].tolist() == [0, 0, 0, 0, 2]
    assert graph.features[510].tolist() == [0, 0, 0, 3, 0]
    assert graph.labels[[510, 512, 513]].tolist() == [1, 1, 0]
    assert graph.features[7].tolist() == [0, 0, 1, 0, 0]
    # The node that test.index leaves out.
    assert graph.features[511].tolist() == [0] * 5
    assert neighbours(graph, 511) == []
    assert neighbours(graph, 0) == [1, 2, 513]
    assert neighbours(graph, 1) == neighbours(graph, 2) == neighbours(graph, 513) == [0]
    assert neighbours(graph, 3) == []


@pytest.mark.parametrize(
    ("kind", "contents", "message"),
    [
        ("x", official.pickled([1]), "ind.cora.x holds a list"),
        ("graph", official.pickled({0: [514]}), "ind.cora.graph is damaged"),
        ("graph", official.pickled({0: 5}), "ind.cora.graph is damaged"),
        ("test.index", b"512\nabc\n", "test.index is not a list of numbers"),
        ("test.index", b"512\n510\n", "do not belong together"),
        ("test.index", b"512\n1000000000000\n510\n", "do not belong together"),
        ("test.index", b"1" + b"0" * 30, "test.index is not a list of numbers"),
        ("test.index", b"512\n512\n510\n", "do not belong together"),
        ("ty", official.pickled(np.eye(3, dtype="<i4")), "do not belong together"),
        ("tx", official.pickled(official.Sparse(np.ones((3, 4)))), "do not belong"),
        ("allx", b"\x80\x02cos\nsystem\n.", "ind.cora.allx is refused: .* os.system"),
    ],
)
def test_damaged_planetoid(tmp_path, kind, contents, message):
    official.planetoid(tmp_path / "planetoid", "cora")
    (tmp_path / "planetoid" / f"ind.cora.{kind}").write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        load("cora", tmp_path, download=False)


@pytest.mark.parametrize(
    ("folder", "snap"), [("facebook_large", True), ("facebook-pages", False)]
)
def test_facebook(tmp_path, folder, snap):
    official.facebook(tmp_path / folder, snap)
    graph = load("facebook", tmp_path, download=False)
    check(graph)
    # Company, government, politician, tvshow.
    assert graph.classes == 4
    assert graph.labels.tolist() == [3, 0, 2, 0, 1]
    expected = np.zeros((5, 7))
    expected[[3, 3, 0, 2, 4], [0, 6, 1, 2, 5]] = 1
    np.testing.assert_array_equal(graph.features, expected)
    assert [neighbours(graph, n) for n in range(5)] == [[1, 4], [0], [], [], [0]]
    parts = np.concatenate([graph.train, graph.validation, graph.test])
    assert sorted(parts) == [0, 1, 2, 3, 4]


def words(last):
    return f'{{"0": [], "1": [], "2": [], "3": [], "4": {last}}}'


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("edges.csv", "id_1,id_2\n0,5\n", "the nodes are 0 to 4"),
        ("edges.csv", "id_1,id_2\n0,x\n", "edges.csv is damaged"),
        ("edges.csv", "a,b\n0,1\n", "the columns id_1, id_2"),
        ("edges.csv", "id_1,id_2\n0\n", "a row is too short"),
        ("target.csv", "id,page_type\n0,a\n2,b\n", "does not number its pages"),
        ("target.csv", "id,page_type\nx,a\n", "target.csv is damaged"),
        ("features.json", '{"0": [1]}', "the words of 5 pages"),
        ("features.json", '{"0": [1', "features.json is damaged"),
        ("features.json", "[1]", "features.json is damaged"),
        ("features.json", "[" * 100_000, "features.json is damaged"),
        ("features.json", words("[1.5]"), "not lists of numbers"),
        ("features.json", words('{"3": 4}'), "not lists of numbers"),
        ("features.json", words("[500000000]"), "more than 8,192 words"),
        ("features.json", words(f"[1{30 * '0'}]"), "features.json is damaged"),
        ("edges.csv", f"id_1,id_2\n0,1{30 * '0'}\n", "edges.csv is damaged"),
        ("target.csv", f"id,page_type\n1{30 * '0'},a\n", "target.csv is damaged"),
        ("target.csv", "id,page_type\n" + "0,a\n" * 32_769, "more than 32,768 pages"),
    ],
)
def test_damaged_facebook(tmp_path, name, contents, message):
    official.facebook(tmp_path / "facebook_large")
    (tmp_path / "facebook_large" / f"musae_facebook_{name}").write_text(contents)
    with pytest.raises(ValueError, match=message):
        load("facebook", tmp_path, download=False)


def test_reddit(tmp_path):
    official.reddit(tmp_path / "reddit")
    graph = load("reddit", tmp_path, download=False)
    check(graph)
    assert graph.classes == 3
    assert graph.features.tolist() == np.arange(12).reshape(4, 3).tolist()
    assert graph.labels.tolist() == [2, 0, 1, 2]
    assert graph.train.tolist() == [0, 3]
    assert graph.validation.tolist() == [2]
    assert graph.test.tolist() == [1]
    assert [neighbours(graph, n) for n in range(4)] == [[1], [0, 2], [1], []]


GRAPH = {
    "format": np.array(b"coo"),
    "shape": np.array([4, 4]),
    "row": np.array([0]),
    "col": np.array([1]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": np.array(b"csr")}, "not a sparse matrix in coordinate form"),
        ({"shape": np.array([5, 5])}, "not the graph of 4 labelled nodes"),
        ({"col": np.array([4])}, "reddit_graph.npz is damaged"),
        ({"col": np.array([{}])}, "not an archive of format"),
    ],
)
def test_damaged_reddit(tmp_path, change, message):
    official.reddit(tmp_path / "reddit")
    np.savez(tmp_path / "reddit" / "reddit_graph.npz", **{**GRAPH, **change})
    with pytest.raises(ValueError, match=message):
        load("reddit", tmp_path, download=False)


def test_truncated_reddit(tmp_path):
    official.reddit(tmp_path / "reddit")
    path = tmp_path / "reddit" / "reddit_data.npz"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"reddit_data\.npz is not an archive of"):
        load("reddit", tmp_path, download=False)
