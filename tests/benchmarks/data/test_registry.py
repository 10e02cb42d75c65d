"""Sets are found, unpacked or downloaded; what is missing is explained."""

import functools
import gzip
import hashlib
import shutil
import tarfile
import zipfile

import numpy as np
import pytest

from benchmarks.data import NAMES, load, registry
from benchmarks.data.containers import to_arrays
from benchmarks.data.fetch import fetch
from tests.benchmarks.data import official
from tests.benchmarks.data.server import Answer, serving


@pytest.fixture(autouse=True)
def impatient(monkeypatch, tmp_path):
    """No waiting, and nothing in the user's own folders."""
    quick = functools.partial(fetch, tries=2, timeout=10.0, pause=0.001)
    monkeypatch.setattr(registry, "fetch", quick)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("CTAGD_DATA", raising=False)


def answers(contents: dict[str, bytes]):
    def script(n, request):
        name = request.path.rsplit("/", 1)[-1]
        return Answer(contents[name]) if name in contents else Answer(status=404)

    return script


def redirect(monkeypatch, name, address, contents):
    """Lets the set come from an address, with the checksums of these contents."""
    source = registry.SOURCES[name]
    remotes = []
    for remote in source.remotes:
        known = hashlib.md5(contents.get(remote.name, b"")).hexdigest()
        remotes.append(registry.Remote(f"{address}/{remote.name}", f"md5:{known}"))
    # Debian's copy must not answer instead.
    monkeypatch.setitem(
        registry.SOURCES,
        name,
        source._replace(remotes=tuple(remotes), folders=source.folders[:1]),
    )


def packed_cifar(tmp_path) -> bytes:
    official.cifar10(tmp_path / "made" / "cifar-10-batches-py")
    with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as file:
        file.add(tmp_path / "made" / "cifar-10-batches-py", "cifar-10-batches-py")
    return (tmp_path / "made.tar.gz").read_bytes()


def test_an_unknown_name():
    with pytest.raises(
        ValueError, match=r"no text file 'cifar_10'\. Did you mean"
    ) as e:
        load("cifar_10")
    assert "'cifar10'" in str(e.value)
    for name in NAMES:
        assert name in str(e.value)
    with pytest.raises(ValueError, match=r"'zzz'\. The sets are: digits"):
        load("zzz")


def test_options_are_for_synthetic():
    with pytest.raises(TypeError, match="the set 'digits' takes no options, not seed"):
        load("digits", seed=1)


def test_every_checksum_is_one():
    sizes = {"md5": 32, "sha256": 64}
    for name, source in registry.SOURCES.items():
        assert source.remotes, name
        if source.inside is None:
            assert len(source.remotes) == len(source.files), name
        for remote in source.remotes:
            assert remote.address.startswith("http"), name
            if remote.checksum is not None:
                algorithm, _, digits = remote.checksum.partition(":")
                assert len(digits) == sizes[algorithm], name
                int(digits, 16)


@pytest.mark.parametrize("name", list(registry.SOURCES))
def test_what_is_missing_is_explained(tmp_path, monkeypatch, name):
    source = registry.SOURCES[name]
    monkeypatch.setitem(
        registry.SOURCES, name, source._replace(folders=source.folders[:1])
    )
    with pytest.raises(FileNotFoundError, match="download is off") as error:
        load(name, tmp_path / "data", download=False)
    assert source.remotes[0].address in str(error.value)
    assert str(tmp_path / "data") in str(error.value)
    assert not (tmp_path / "data").exists()


def test_the_environment_chooses_the_folder(tmp_path, monkeypatch):
    official.mnist(tmp_path / "chosen" / "mnist")
    monkeypatch.setenv("CTAGD_DATA", str(tmp_path / "chosen"))
    assert load("mnist", download=False).classes == 10
    assert (tmp_path / "chosen" / "cache" / "mnist-1" / "manifest.json").is_file()


def test_an_archive_is_downloaded_and_unpacked(tmp_path, monkeypatch):
    contents = {"cifar-10-python.tar.gz": packed_cifar(tmp_path)}
    data = tmp_path / "data"
    with serving(answers(contents)) as server:
        redirect(monkeypatch, "cifar10", server.address, contents)
        images = load("cifar10", data)
    assert images.train.images.shape == (20, 32, 32, 3)
    assert sorted(p.name for p in data.iterdir()) == [
        "cache",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
    ]
    # Everything is there now: the server is not.
    shutil.rmtree(data / "cache")
    (data / "cifar-10-python.tar.gz").unlink()
    again = load("cifar10", data)
    np.testing.assert_array_equal(again.train.images, images.train.images)


def test_an_archive_put_there_by_hand(tmp_path, monkeypatch):
    contents = {"cifar-10-python.tar.gz": packed_cifar(tmp_path)}
    redirect(monkeypatch, "cifar10", "http://unused", contents)
    (tmp_path / "data").mkdir()
    archive = tmp_path / "data" / "cifar-10-python.tar.gz"
    archive.write_bytes(contents[archive.name] + b"x")
    with pytest.raises(ValueError, match=r"the checksum md5:.*: remove it"):
        load("cifar10", tmp_path / "data", download=False)
    archive.write_bytes(contents[archive.name])
    images = load("cifar10", tmp_path / "data", download=False)
    assert images.test.labels.tolist() == [0, 1, 2, 3]


def test_an_archive_of_something_else(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    archive = tmp_path / "data" / "reddit.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match="is not the set 'reddit': files are missing"):
        load("reddit", tmp_path / "data", download=False)


def test_an_incomplete_folder_is_not_touched(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    official.cifar10(folder)
    (folder / "data_batch_2").unlink()
    with pytest.raises(ValueError, match="lacks data_batch_2: complete it, or remove"):
        load("cifar10", tmp_path)
    assert len(list(folder.iterdir())) == 5


def test_only_missing_files_are_downloaded(tmp_path, monkeypatch):
    official.mnist(tmp_path / "data" / "mnist")
    path = tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz"
    contents = {path.name: path.read_bytes()}
    path.unlink()
    # One of the others is unpacked.
    other = path.with_name("train-labels-idx1-ubyte.gz")
    other.with_suffix("").write_bytes(gzip.decompress(other.read_bytes()))
    other.unlink()
    with serving(answers(contents)) as server:
        redirect(monkeypatch, "mnist", server.address, contents)
        images = load("mnist", tmp_path / "data")
    assert images.test.labels.tolist() == list(range(10))
    assert [r.path for r in server.requests] == [f"/{path.name}"]


@pytest.mark.parametrize(
    ("served", "reason"),
    [(None, "answers 404"), (b"something else", "does not have the checksum")],
)
def test_a_failed_download_is_explained(tmp_path, monkeypatch, served, reason):
    name = "cifar-10-python.tar.gz"
    with serving(answers({} if served is None else {name: served})) as server:
        redirect(monkeypatch, "cifar10", server.address, {name: b"right"})
        with pytest.raises(FileNotFoundError, match=reason) as error:
            load("cifar10", tmp_path / "data")
    message = str(error.value)
    assert f"put {server.address}/{name} at {tmp_path / 'data' / name}" in message
    assert f"or its contents at {tmp_path / 'data' / 'cifar-10-batches-py'}" in message
    assert list((tmp_path / "data").iterdir()) == []


def test_debians_folder_is_looked_into(tmp_path, monkeypatch):
    source = registry.SOURCES["fashion_mnist"]
    assert source.folders[1] == "/usr/share/datasets/fashion-mnist"
    elsewhere = tmp_path / "share"
    official.mnist(elsewhere)
    monkeypatch.setitem(
        registry.SOURCES,
        "fashion_mnist",
        source._replace(folders=("fashion-mnist", str(elsewhere))),
    )
    load("fashion_mnist", tmp_path / "data", download=False)
    assert (tmp_path / "data" / "cache" / "fashion_mnist-1").is_dir()


def test_a_read_only_data_folder(tmp_path):
    official.mnist(tmp_path / "data" / "mnist")
    # A file in the place of the folder: not even root can write there.
    (tmp_path / "data" / "cache").write_text("")
    images = load("mnist", tmp_path / "data", download=False)
    kept = tmp_path / "user" / "ctagd_optax" / "data" / "cache" / "mnist-1"
    assert (kept / "manifest.json").is_file()
    again = load("mnist", tmp_path / "data", download=False)
    assert isinstance(again.train.images.base, np.memmap)
    np.testing.assert_array_equal(again.train.images, images.train.images)


@pytest.mark.parametrize("name", ["mnist", "citeseer", "shakespeare"])
def test_the_cache_gives_the_same(tmp_path, monkeypatch, name):
    official.mnist(tmp_path / "mnist")
    official.planetoid(tmp_path / "planetoid")
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("hello, world")
    source = registry.SOURCES[name]
    made = []

    def read(files):
        made.append(source.read(files))
        return made[-1]

    monkeypatch.setitem(registry.SOURCES, name, source._replace(read=read))
    for _ in range(2):
        kept = load(name, tmp_path, download=False)
        assert [type(kept)] == [type(fresh) for fresh in made]
        assert list(map(type, kept)) == list(map(type, made[0]))
        fresh = to_arrays(made[0])
        for key, array in to_arrays(kept).items():
            assert array.dtype == fresh[key].dtype
            np.testing.assert_array_equal(array, fresh[key])


def test_a_new_version_is_read_anew(tmp_path, monkeypatch):
    official.mnist(tmp_path / "mnist")
    load("mnist", tmp_path, download=False)
    source = registry.SOURCES["mnist"]
    calls = []

    def read(files):
        calls.append(files)
        return source.read(files)

    newer = source._replace(version=source.version + 1, read=read)
    monkeypatch.setitem(registry.SOURCES, "mnist", newer)
    load("mnist", tmp_path, download=False)
    assert len(calls) == 1
