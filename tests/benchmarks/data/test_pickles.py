"""Official pickles are read; hostile ones are refused before they do anything."""

import os
import pickle
import struct

import numpy as np
import pytest

from benchmarks.data.pickles import Matrix, read_pickle
from tests.benchmarks.data import official


@pytest.fixture
def read(tmp_path):
    def read(contents: bytes):
        path = tmp_path / "file.pkl"
        path.write_bytes(contents)
        return read_pickle(path)

    return read


def test_reads_what_python_2_wrote(read):
    pixels = np.arange(256, dtype=np.uint8).reshape(2, 128)
    out = read(official.pickled({"data": pixels, "labels": [3, 4], "name": "Käse"}))
    assert list(out) == ["data", "labels", "name"]
    np.testing.assert_array_equal(out["data"], pixels)
    assert out["data"].dtype == np.uint8
    assert out["labels"] == [3, 4]
    assert out["name"] == "Käse"


def test_reads_what_python_3_writes(read):
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    out = read(pickle.dumps({"a": array, "b": [1.5, None, True]}, protocol=2))
    np.testing.assert_array_equal(out["a"], [[0, 1, 2], [3, 4, 5]])
    assert out["b"] == [1.5, None, True]


def test_reads_a_sparse_matrix_without_scipy(read):
    dense = np.float32([[0, 2, 0], [0, 0, 0], [1, 0, 3]])
    out = read(official.pickled(official.Sparse(dense)))
    assert isinstance(out, Matrix)
    np.testing.assert_array_equal(out.dense(), dense)
    assert out.dense().dtype == np.float32


def test_reads_a_graph(read):
    assert read(official.pickled(official.Lists({0: [1, 2], 1: []}))) == {
        0: [1, 2],
        1: [],
    }


class Hostile:
    """Calls something when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch owned",), "system"),
        (eval, ("open('owned', 'w')",), "eval"),
        (getattr, ("text", "format"), "getattr"),
        (np.load, ("x.npy", None, True), "load"),
        (np.zeros, (10**12,), "zeros"),
        (bytearray, (10**12,), "bytearray"),
    ],
)
def test_refuses_calls(read, tmp_path, monkeypatch, function, arguments, name):
    monkeypatch.chdir(tmp_path)
    contents = pickle.dumps({"data": Hostile(function, arguments)}, protocol=2)
    with pytest.raises(ValueError, match=rf"file\.pkl is refused: it holds .*{name}"):
        read(contents)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        # Newer protocols hide a global's name in the stack.
        (pickle.dumps(Hostile(os.system, ("true",)), protocol=4), "is foreign"),
        (b"cos\nsystem\n(S'true'\ntR.", "opcode STRING"),
        (b"(S'true'\nios\nsystem\n.", "opcode STRING"),
        (b"\x80\x02P1\n.", "opcode PERSID"),
        (b"\x80\x02\x82\x01.", "opcode EXT1"),
        (b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b".", "a table of 4294967295"),
        (b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"x.", "2147483647 bytes"),
        (b"\x80\x02N.more", "more after its end"),
        (official.pickled([1, 2])[:-3], "refused"),
        (b"", "refused"),
        (
            b"\x80\x02" + official.array((10**6, 10**6), "u1", b"12") + b".",
            "has 2 bytes",
        ),
        (b"\x80\x02" + official.array((-1, -2), "u1", b"12") + b".", "has shape"),
        (b"\x80\x02" + official.array((1,), "O8", b"12345678") + b".", "dtype 'O8'"),
        # State for a class would change what later files see.
        (
            b"\x80\x02" + official.global_("numpy", "ndarray") + b"}(T\x01\0\0\0aNub.",
            "refused",
        ),
        (
            b"\x80\x02" + official.global_("__builtin__", "list") + b")R}b.",
            "takes no state",
        ),
        (
            b"\x80\x02"
            + official.global_("_codecs", "encode")
            + b"(T\x01\0\0\0aT\x03\0\0\0hextR.",
            "encoding 'hex'",
        ),
    ],
)
def test_refuses_the_damaged_and_the_foreign(read, contents, message):
    with pytest.raises(ValueError, match=message):
        read(contents)


@pytest.mark.parametrize("place", ["indices", "indptr"])
def test_refuses_an_inconsistent_matrix(read, place):
    state = {
        "_shape": (2, 2),
        "data": np.ones(2, "<f4"),
        "indices": np.int32([0, 1]),
        "indptr": np.int32([0, 1, 2]),
    }
    start = official.global_("scipy.sparse.csr", "csr_matrix") + b")\x81"

    def contents():
        body = official.pickled(state)[2:-1]
        return b"\x80\x02" + start + body + b"b."

    assert read(contents()).shape == (2, 2)
    state[place] = state[place] + np.int32(1)
    with pytest.raises(ValueError, match="inconsistent"):
        read(contents())
