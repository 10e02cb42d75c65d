"""Folders appear whole or not at all, and the user chooses where."""

import errno
import pathlib
import sys
import threading
import time

import pytest

from benchmarks.data import folders


def test_the_argument_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("CTAGD_DATA", str(tmp_path / "environment"))
    assert folders.data_folder(tmp_path / "a") == tmp_path / "a"
    assert folders.data_folder() == tmp_path / "environment"
    monkeypatch.delenv("CTAGD_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert folders.data_folder() == tmp_path / "cache" / "ctagd_optax" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.data_folder() == tmp_path / ".cache" / "ctagd_optax" / "data"
    assert folders.data_folder("~/x") == pathlib.Path(tmp_path / "x")


def test_a_failure_leaves_what_was_there(tmp_path):
    target = tmp_path / "set"
    with folders.building(target) as temporary:
        (temporary / "a").write_text("old")
        assert not target.exists()

    def fail():
        with folders.building(target) as temporary:
            (temporary / "a").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_the_old_folder_is_replaced(tmp_path):
    target = tmp_path / "set"
    for name in ("a", "b"):
        with folders.building(target) as temporary:
            (temporary / name).write_text(name)
    assert [p.name for p in target.iterdir()] == ["b"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    for name in ("new", "old"):
        (tmp_path / ".set.part" / name / "deep").mkdir(parents=True)
    (tmp_path / ".set.part" / "lock").touch()
    with folders.building(tmp_path / "set") as temporary:
        (temporary / "a").write_text("a")
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def no_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)


def no_lock_on_this_disk(monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)


def build_in_threads(target, inside) -> None:
    """Eight threads build at once, ten times each."""
    failures = []

    def build(n: int) -> None:
        try:
            for _ in range(10):
                with folders.building(target) as temporary:
                    (temporary / "a").write_text(str(n))
                    inside()
                    (temporary / "b").write_text(str(n))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=build, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (target / "a").read_text() == (target / "b").read_text()
    assert [p.name for p in target.parent.iterdir()] == [target.name]


def test_builders_wait_for_each_other(tmp_path):
    inside = threading.Lock()
    entered = []

    def alone():
        assert inside.acquire(blocking=False)
        entered.append(1)
        time.sleep(0.001)
        inside.release()

    build_in_threads(tmp_path / "set", alone)
    assert len(entered) == 80


@pytest.mark.parametrize("without_locks", [no_module, no_lock_on_this_disk])
def test_without_locks_each_has_its_own(tmp_path, monkeypatch, without_locks):
    without_locks(monkeypatch)
    barrier = threading.Barrier(8)
    build_in_threads(tmp_path / "set", lambda: barrier.wait(60))


def test_a_file_in_the_way_is_not_removed(tmp_path):
    target = tmp_path / "set"
    target.write_text("mine")

    def build():
        with folders.building(target) as temporary:
            (temporary / "a").write_text("a")

    with pytest.raises(OSError, match="set"):
        build()
    assert target.read_text() == "mine"
