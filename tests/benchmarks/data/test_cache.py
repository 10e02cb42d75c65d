"""What is kept is used only as long as it is what was made of these sources."""

import json
import os

import numpy as np
import pytest

from benchmarks.data import cache

ARRAYS = {
    "images": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "classes": np.asarray(10),
    "vocabulary": np.asarray(["a", "é"]),
    "none": np.zeros((0, 3), np.float32),
}


class Maker:
    """Counts how often it is asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        """Makes the arrays."""
        self.calls += 1
        return ARRAYS


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_text("contents")
    return path


def check(arrays):
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_made_once_and_mapped(tmp_path, source):
    make, folder = Maker(), tmp_path / "cache" / "set-1"
    for _ in range(2):
        arrays = cache.cached([folder], [source], make)
        check(arrays)
        assert type(arrays["images"]) is np.ndarray
        assert isinstance(arrays["images"].base, np.memmap)
        assert not arrays["images"].flags.writeable
    assert make.calls == 1
    assert [p.name for p in folder.parent.iterdir()] == ["set-1"]


def test_a_changed_source_makes_it_anew(tmp_path, source):
    make, folder = Maker(), tmp_path / "cache" / "set-1"
    cache.cached([folder], [source], make)
    os.utime(source, ns=(0, 0))
    check(cache.cached([folder], [source], make))
    source.write_text("other contents")
    check(cache.cached([folder], [source], make))
    assert make.calls == 3


def truncate(folder):
    path = folder / "images.npy"
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(folder):
    with (folder / "images.npy").open("ab") as file:
        file.write(b"x")


def another_shape(folder):
    np.save(folder / "images.npy", ARRAYS["images"].reshape(3, 2, 4))


def objects(folder):
    np.save(folder / "images.npy", np.asarray([{}]), allow_pickle=True)


def remove(folder):
    (folder / "classes.npy").unlink()


def no_manifest(folder):
    (folder / "manifest.json").unlink()


def half_a_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:40])


def a_list_as_manifest(folder):
    (folder / "manifest.json").write_text(json.dumps([1]))


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        lengthen,
        another_shape,
        objects,
        remove,
        no_manifest,
        half_a_manifest,
        a_list_as_manifest,
    ],
)
def test_a_damaged_cache_is_made_anew(tmp_path, source, damage):
    make, folder = Maker(), tmp_path / "cache" / "set-1"
    cache.cached([folder], [source], make)
    damage(folder)
    check(cache.cached([folder], [source], make))
    check(cache.cached([folder], [source], make))
    assert make.calls == 2


def test_a_failure_half_way_leaves_nothing(tmp_path, source, monkeypatch):
    folder = tmp_path / "cache" / "set-1"
    save = np.save

    def fail(path, array, **options):
        if path.stem == "vocabulary":
            raise OSError("no space left")
        save(path, array, **options)

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="no space"):
        cache.cached([folder], [source], Maker())
    assert list(folder.parent.iterdir()) == []
    monkeypatch.undo()
    check(cache.cached([folder], [source], Maker()))


def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path, source):
    make = Maker()
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    folders = [blocked / "cache" / "set-1", tmp_path / "user" / "set-1"]
    for _ in range(2):
        check(cache.cached(folders, [source], make))
    assert make.calls == 1
    assert folders[1].is_dir()


def test_without_any_folder_it_stays_in_memory(tmp_path, source, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    check(cache.cached([tmp_path / "cache" / "set-1"], [source], Maker()))
    assert not (tmp_path / "cache" / "set-1").exists()
