"""Files that come from elsewhere write nowhere else, and take no more than they may."""

import gzip
import io
import pathlib
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from benchmarks.data import archives, load
from benchmarks.data.archives import extract
from benchmarks.data.graphs import read_reddit
from benchmarks.data.pickles import read_pickle
from benchmarks.data.registry import SOURCES
from tests.benchmarks.data import official

ROOT = pathlib.Path(__file__).parents[2]
MIB = 1 << 20


def make_tar(path, entries):
    """A .tar.gz of entries: name, type, and contents or the target of a link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, value in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                entry.linkname = value
                tar.addfile(entry)
            else:
                entry.size = len(value)
                tar.addfile(entry, io.BytesIO(value))
    return path


def past_the_longest_path():
    """Links whose target is longer than a path may be, so that nobody resolves it."""
    folder, links = "d" * 247, "abcdefghijklmnop"
    path = ""
    for link in links:
        yield path + folder, tarfile.DIRTYPE, b""
        yield path + link, tarfile.SYMTYPE, folder
        path += folder + "/"
    top = "/".join(links) + "/" + "l" * 254
    yield top, tarfile.SYMTYPE, "../" * len(links)
    yield "escape", tarfile.SYMTYPE, top + "/../.."
    yield "escape/evil", tarfile.REGTYPE, b"evil"


@pytest.mark.parametrize(
    "entries",
    [
        past_the_longest_path(),
        [("link", tarfile.SYMTYPE, "file"), ("file", tarfile.REGTYPE, b"")],
        [("file", tarfile.REGTYPE, b""), ("link", tarfile.LNKTYPE, "file")],
        [("pipe", tarfile.FIFOTYPE, b"")],
        [("device", tarfile.CHRTYPE, b"")],
    ],
    ids=["long", "symbolic", "hard", "pipe", "device"],
)
def test_a_tar_has_files_and_folders_only(tmp_path, entries):
    archive = make_tar(tmp_path / "a.tar.gz", entries)
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match=r"a\.tar\.gz cannot be unpacked: .* is no"):
        extract(archive, tmp_path / "in" / "target", limit=MIB)
    assert list(tmp_path.rglob("evil")) == list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "c:evil"])
def test_a_tar_leads_nowhere_else(tmp_path, name):
    archive = make_tar(tmp_path / "a.tar.gz", [(name, tarfile.REGTYPE, b"")])
    with pytest.raises(ValueError, match="leads outside"):
        extract(archive, tmp_path / "target", limit=MIB)


def zip_of(path, size, names=("zeros",)):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, bytes(size))
    return path


def lying_zip(path, size):
    """A zip whose list says one byte for what is more."""
    raw = zip_of(path, size).read_bytes()
    place = raw.rindex(struct.pack("<I", size))
    path.write_bytes(raw[:place] + struct.pack("<I", 1) + raw[place + 4 :])
    return path


def sparse_tar(path, sizes):
    """A tar of files that are all hole."""
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for n, size in enumerate(sizes):
            entry = tarfile.TarInfo(str(n))
            entry.pax_headers = {
                "GNU.sparse.map": f"{max(size, 0)},0",
                "GNU.sparse.size": str(size),
            }
            tar.addfile(entry)
    return path


def long_name_tar(path, size):
    """A tar whose only large thing is a name, which is read into memory."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        entry = tarfile.TarInfo("name")
        entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, size
        file.write(entry.tobuf())
        for _ in range(size // MIB):
            file.write(bytes(MIB))
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.zip", zip_of),
        ("a.zip", lambda path, size: zip_of(path, size // 8, map(str, range(10)))),
        (
            "a.tar.gz",
            lambda path, size: make_tar(
                path, [("zeros", tarfile.REGTYPE, bytes(size))]
            ),
        ),
        ("a.tar.gz", long_name_tar),
    ],
    ids=["zip", "many", "tar", "name"],
)
def test_an_archive_unpacks_to_no_more_than_the_set_has(tmp_path, name, make):
    archive = make(tmp_path / name, 16 * MIB)
    assert archive.stat().st_size < MIB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"more than 1,048,576 bytes"):
        extract(archive, tmp_path / "target", limit=MIB)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("sizes", [(16 * MIB,), (-16 * MIB, 16 * MIB), (5,)], ids=str)
def test_a_file_has_no_holes(tmp_path, sizes):
    archive = sparse_tar(tmp_path / "a.tar.gz", sizes)
    with pytest.raises(ValueError, match="its entry '0' has holes"):
        extract(archive, tmp_path / "target", limit=MIB)
    assert not (tmp_path / "target").exists()


def test_an_archive_has_no_more_entries_than_a_set(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 5)
    extract(zip_of(tmp_path / "a.zip", 0, "01234"), tmp_path / "five", limit=MIB)
    with pytest.raises(ValueError, match="more than 5 entries"):
        extract(zip_of(tmp_path / "b.zip", 0, "012345"), tmp_path / "six", limit=MIB)


def test_a_zip_gives_no_more_than_its_list_says(tmp_path):
    archive = lying_zip(tmp_path / "a.zip", 16 * MIB)
    with pytest.raises(ValueError, match=r"a\.zip cannot be unpacked"):
        extract(archive, tmp_path / "target", limit=MIB)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_name_that_is_there_twice(tmp_path, kind):
    archive = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("x", "file")
            file.writestr("x/y", "below a file")
    else:
        make_tar(archive, [(n, tarfile.REGTYPE, b"") for n in ("x", "x/y")])
    with pytest.raises(ValueError, match=r"cannot be unpacked: .*x"):
        extract(archive, tmp_path / "target", limit=MIB)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_damaged_archives_are_refused_in_words(tmp_path, kind):
    archive = tmp_path / f"a.{kind}"
    if kind == "zip":
        zip_of(archive, 1000, ("set/a", "set/b"))
    else:
        entries = [(n, tarfile.REGTYPE, bytes(1000)) for n in ("set/a", "set/b")]
        make_tar(archive, entries)
    whole = archive.read_bytes()
    random = np.random.default_rng(0)
    refused = []
    for n in range(150):
        raw = bytearray(whole)
        for place in random.integers(len(raw), size=1 + n % 3):
            raw[place] = random.integers(256)
        archive.write_bytes(raw[: random.integers(len(raw))] if n % 5 == 0 else raw)
        try:
            extract(archive, tmp_path / "target", "set", limit=MIB)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all(str(archive) in message for message in refused)


def test_every_archive_of_a_set_has_a_limit():
    archives = {name: s for name, s in SOURCES.items() if s.inside is not None}
    assert set(archives) == {
        "cifar10",
        "cifar100",
        "tiny_imagenet",
        "facebook",
        "reddit",
    }
    assert all(MIB < s.limit <= 4 << 30 for s in archives.values())


def test_a_set_passes_its_limit_on(tmp_path, monkeypatch):
    small = SOURCES["facebook"]._replace(limit=MIB)
    monkeypatch.setitem(SOURCES, "facebook", small)
    zip_of(tmp_path / "facebook_large.zip", MIB + 1)
    with pytest.raises(ValueError, match=r"facebook_large\.zip .*: it has more than"):
        load("facebook", tmp_path, download=False)


# Reads pickles, each in a process of its own; prints what was said and MiB taken.
READER = """
import os, resource, sys
from pathlib import Path
from benchmarks.data.pickles import read_pickle

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

for path in sys.argv[1:]:
    if os.fork() == 0:
        before = used()
        try:
            read_pickle(Path(path))
            said = "it is read"
        except ValueError as error:
            said = str(error)[:300]
        print(used() - before, said, flush=True)
        os._exit(0)
    os.wait()
"""


def text(value):
    return b"T" + struct.pack("<i", len(value)) + value


# Text that is there once, and is made into bytes or arrays many times.
TEXT = text(bytes(2 * MIB)) + b"q\x00"
ENCODED = official.global_("_codecs", "encode") + b"h\x00" + text(b"latin1") + b"\x86R"
ARRAY = official.array((2 * MIB,), "u1", b"x").replace(text(b"x"), b"h\x00")


EMOJI = "\N{ROCKET}".encode() + bytes(5 * MIB)


def colliding(n):
    """A key that has the hash of all others, and its value."""
    raw = (n * (2**61 - 1)).to_bytes(9, "little")
    return b"\x8a" + bytes([len(raw)]) + raw + b"N"


def test_a_pickle_takes_no_more_than_an_official_one(tmp_path):
    bodies = {
        "more than 500,000 parts": b"]" * 10_000_000,
        "has more than 500,000 parts": b"}" * 10_000_000,
        "it copies its contents more than once": TEXT + ENCODED * 1000,
        "copies its contents more than once": TEXT + ARRAY * 150,
        "more than 1,000 tuples": b"})" + b"\x85" * 400_000 + b"Ns",
        "it is read": TEXT + ENCODED,
        "codec can't encode": b"X" + struct.pack("<i", len(EMOJI)) + EMOJI,
        "has more than 64 bits": b"}(" + b"".join(map(colliding, range(9, 99))) + b"u",
    }
    paths = [tmp_path / str(n) for n in range(len(bodies))]
    for path, body in zip(paths, bodies.values(), strict=True):
        path.write_bytes(b"\x80\x02](" + body + b"e.")
    done = subprocess.run(
        [sys.executable, "-c", READER, *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(bodies), "a process crashed"
    for message, line in zip(bodies, lines, strict=True):
        assert message in line
        assert float(line.split()[0]) < 64, line


@pytest.mark.parametrize("columns", [2**31 - 1, 1 << 14], ids=str)
def test_a_sparse_matrix_is_no_larger_than_an_official_one(tmp_path, columns):
    state = {
        "_shape": (1 << 12, columns),
        "data": np.zeros(0, "<f4"),
        "indices": np.zeros(0, "<i4"),
        "indptr": np.zeros((1 << 12) + 1, "<i4"),
    }
    start = official.global_("scipy.sparse.csr", "csr_matrix") + b")\x81"
    path = tmp_path / "file.pkl"
    path.write_bytes(b"\x80\x02" + start + official.pickled(state)[2:-1] + b"b.")
    with pytest.raises(ValueError, match=rf"a sparse matrix has shape .*{columns}\)"):
        read_pickle(path)


def test_a_pickle_is_no_longer_than_an_official_one(tmp_path):
    path = tmp_path / "file.pkl"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole, which takes no room
    with pytest.raises(ValueError, match=r"refused: it has 1,099,511,627,776 bytes"):
        read_pickle(path)


@pytest.mark.parametrize(
    "shape",
    [
        (2**31 - 1,) * 3,
        (2**20, 2**20, 2**20),
        (-5, 28, 28),
        (20, -28, -28),
        (60_001, 28, 28),
        (20, 29, 28),
        (0, 28, 28),
    ],
    ids=str,
)
def test_an_idx_file_has_the_shape_of_mnist(tmp_path, shape):
    official.mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    header = struct.pack(">4i", 0x0803, *shape)
    path.write_bytes(gzip.compress(header + bytes(16 * MIB), 1))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz .*its shape is"):
        load("mnist", tmp_path, download=False)


@pytest.mark.parametrize("size", [(64, 65), (20_000, 20_000)], ids=str)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_picture_of_another_size_or_kind(tmp_path, size, kind):
    official.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    [path] = tmp_path.rglob("n01_0.JPEG")
    if kind == "PNG":
        Image.new("1", size if size[0] < 65 else (64, 64)).save(path, "PNG")
    else:
        raw = path.read_bytes()  # of 64 by 64, and says another size
        assert raw.count(struct.pack(">HH", 64, 64)) == 1
        raw = raw.replace(struct.pack(">HH", 64, 64), struct.pack(">HH", *size))
        path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"n01_0\.JPEG is not a JPEG of 64 by 64"):
        load("tiny_imagenet", tmp_path, download=False)


def npy(shape):
    """An array of one byte that claims a shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return file.getvalue() + b"x"


@pytest.mark.parametrize("shape", [(1 << 60,), (1 << 40, 1 << 40)], ids=str)
def test_an_npz_file_that_claims_a_large_array(tmp_path, shape):
    official.reddit(tmp_path / "reddit")
    path = tmp_path / "reddit" / "reddit_data.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("feature", "label", "node_types"):
            file.writestr(f"{name}.npy", npy(shape))
    files = {p.name: p for p in path.parent.iterdir()}
    with pytest.raises(ValueError, match=r"reddit_data\.npz is not an archive of"):
        read_reddit(files)


def test_an_npz_file_that_unpacks_to_more_than_the_set_has(tmp_path):
    official.reddit(tmp_path / "reddit")
    path = tmp_path / "reddit" / "reddit_data.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("feature", "label", "node_types"):
            file.writestr(f"{name}.npy", b"")
    # The list claims five gigabytes, which nobody should begin to read.
    raw = bytearray(path.read_bytes())
    place = raw.index(b"PK\x01\x02") + 24
    raw[place : place + 4] = struct.pack("<I", 2**32 - 2)
    second = raw.index(b"PK\x01\x02", place) + 24
    raw[second : second + 4] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(raw)
    files = {p.name: p for p in path.parent.iterdir()}
    with pytest.raises(ValueError, match=r"reddit_data\.npz .*bytes"):
        read_reddit(files)
