"""Reads the pickles of official archives without running anything they hold.

The opcodes are checked before the first is executed, and every global becomes an inert
stand-in of our own: neither NumPy nor SciPy ever sees what the file says. A file has at
most so many bytes and parts as the largest official ones, and nothing in it is copied
more than once: it takes up to three times its bytes and 100 MiB of memory, six times if
it is refused for text that is not Latin-1.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# What CIFAR and Planetoid hold, and what Python 3 writes for the same contents.
_OPCODES = """
    PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    BINSTRING SHORT_BINSTRING BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS GLOBAL REDUCE NEWOBJ BUILD
    BINGET LONG_BINGET BINPUT LONG_BINPUT
"""
# The longest is the training part of CIFAR-100, with 155 million bytes and about
# 300,000 opcodes; Citeseer has 12 million entries in its matrices.
_MOST_BYTES = 1 << 28
_MOST_PARTS = 500_000
_MOST_TUPLES = 1000
_MOST_ENTRIES = 1 << 24
_DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


class Matrix(NamedTuple):
    """A sparse matrix by rows: row i has data[j] in column indices[j]."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    def dense(self) -> np.ndarray:
        """All entries, float32."""
        rows, columns = self.shape
        out = np.zeros((rows, columns), np.float32)
        out[np.repeat(np.arange(rows), np.diff(self.indptr)), self.indices] = self.data
        return out


def read_pickle(path: Path) -> Any:
    """The contents: numbers, strings, lists, dicts, arrays and sparse matrices.

    Strings of Python 2 are read as Latin-1.

    Args:
      path: an official file, in protocol 2.

    Returns:
      The object in the file.

    Raises:
      ValueError: the file is damaged, or holds something else.
    """
    size = path.stat().st_size
    try:
        if size > _MOST_BYTES:
            raise ValueError(f"it has {size:,} bytes, more than {_MOST_BYTES:,}")
        contents = path.read_bytes()
        _check(contents)
        value = _Reader(contents).load()
        return _resolve(value)
    except Exception as error:
        # Damaged bytes may raise anything at all inside the unpickler.
        raise ValueError(f"{path} is refused: {error}") from error


def _check(contents: bytes) -> None:
    admitted = frozenset(_OPCODES.split())
    end = tuples = 0
    for n, (opcode, argument, position) in enumerate(pickletools.genops(contents)):
        if n == _MOST_PARTS:
            raise ValueError(f"it has more than {_MOST_PARTS:,} parts")
        # Python crashes on tuples that are nested too deeply.
        tuples += "TUPLE" in opcode.name
        if tuples > _MOST_TUPLES:
            raise ValueError(f"it has more than {_MOST_TUPLES:,} tuples")
        if opcode.name not in admitted:
            raise ValueError(f"the opcode {opcode.name} at byte {position} is foreign")
        # Python keeps other text in up to four times its bytes.
        if opcode.name == "BINUNICODE":
            argument.encode("latin1")
        # Larger numbers may all have one hash, and a dict of them takes hours.
        if opcode.name == "LONG1" and abs(argument) >= 1 << 63:
            raise ValueError(f"the number at byte {position} has more than 64 bits")
        # The unpickler makes its table as long as the highest number.
        if opcode.name == "LONG_BINPUT" and argument > _MOST_PARTS:
            raise ValueError(f"it wants a table of {argument} entries")
        end = position + 1
    if end != len(contents):
        raise ValueError("there is more after its end")


class _StandIn:
    """An object that does nothing; BUILD on the class itself fails as well."""

    __slots__ = ()

    def __init__(self, *arguments: Any):
        del arguments

    def __setstate__(self, state: Any) -> None:
        raise ValueError(f"{type(self).__name__} takes no state")


class _Array(_StandIn):
    __slots__ = ("_encode", "value")

    def __init__(self, encode: Callable[[str], bytes]):
        self._encode = encode

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, columns_first, data = state
        if isinstance(data, str):
            data = self._encode(data)
        if len(shape) > 2 or min(shape, default=0) < 0:
            raise ValueError(f"an array has shape {shape!r:.100}")
        shape = tuple(int(n) for n in shape)
        if math.prod(shape) * dtype.value.itemsize != len(data):
            raise ValueError(
                f"an array of shape {shape} and dtype {dtype.value} has {len(data)} "
                "bytes"
            )
        order = "F" if columns_first else "C"
        self.value = np.frombuffer(data, dtype.value).reshape(shape, order=order)


class _Dtype(_StandIn):
    __slots__ = ("value",)

    def __init__(self, code: str, *_: Any):
        if code not in _DTYPES:
            raise ValueError(f"the dtype {code!r:.20} is none of {', '.join(_DTYPES)}")
        self.value = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        byte_order = state[1]
        if byte_order not in ("<", ">", "|"):
            raise ValueError(f"the byte order {byte_order!r:.20} is unknown")
        self.value = self.value.newbyteorder(byte_order)


class _Csr(_StandIn):
    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        rows, columns = (int(n) for n in state["_shape"])
        if not 0 <= rows * columns <= _MOST_ENTRIES:
            raise ValueError(f"a sparse matrix has shape ({rows}, {columns})")
        data, indices, indptr = (
            state[name].value for name in ("data", "indices", "indptr")
        )
        whole = (
            data.ndim == indices.ndim == indptr.ndim == 1
            and indices.dtype.kind == indptr.dtype.kind == "i"
            and len(indptr) == rows + 1
            and len(data) == len(indices) == indptr[-1]
            and indptr[0] == 0
            and (np.diff(indptr) >= 0).all()
            and ((indices >= 0) & (indices < columns)).all()
        )
        if not whole:
            raise ValueError("a sparse matrix is inconsistent")
        self.value = Matrix(data, indices, indptr, (rows, columns))


class _Lists(dict, _StandIn):
    """A defaultdict(list), without the default."""

    def __init__(self, *_: Any):
        super().__init__()


_GLOBALS = {
    ("numpy", "ndarray"): _StandIn,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _Lists,
    ("builtins", "list"): _StandIn,
}


class _Reader(pickle.Unpickler):
    def __init__(self, contents: bytes):
        super().__init__(io.BytesIO(contents), encoding="latin1")
        self._left = len(contents)

    def find_class(self, module: str, name: str) -> Callable:
        module = module.replace("__builtin__", "builtins")
        if name == "_reconstruct" and module in (
            "numpy.core.multiarray",
            "numpy._core.multiarray",
        ):
            return lambda *_: _Array(self._encode)
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        found = _GLOBALS.get((module, name))
        if found is None:
            raise ValueError(f"it holds {module}.{name}, which no official file does")
        return found

    def _encode(self, text: str, encoding: str = "latin1") -> bytes:
        """Bytes, which Python 3 writes in protocol 2 as encoded text."""
        if encoding != "latin1":
            raise ValueError(f"the encoding {encoding!r:.20} is foreign")
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("it copies its contents more than once")
        return text.encode("latin1")


def _resolve(value: Any) -> Any:
    if isinstance(value, _Array | _Csr):
        return value.value
    if isinstance(value, dict):
        return {
            key: item.value if isinstance(item, _Array | _Csr) else item
            for key, item in value.items()
        }
    return value
