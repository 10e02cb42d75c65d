"""A half-written file never looks whole."""

import os

import pytest

from benchmarks.files import read_json, write_json


def test_replaces_only_on_success(tmp_path):
    path = tmp_path / "folder" / "x.json"
    write_json(path, {"a": 1})
    assert path.read_text() == '{\n "a": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_what_replaces_a_file_is_on_the_disk_before(tmp_path, monkeypatch):
    path, seen = tmp_path / "x.json", []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.exists()))
    write_json(path, {"a": 1})
    assert seen == [False]


def test_what_is_read_is_what_was_meant(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1, "b": 2})
    assert read_json(path, {"a"}, "a thing") == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match=r"x\.json does not describe a thing"):
        read_json(path, {"a", "c"}, "a thing")
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"x\.json does not describe a thing"):
        read_json(path, {"a"}, "a thing")
    path.write_text("{")
    with pytest.raises(ValueError, match=r"x\.json is not JSON: Expecting"):
        read_json(path, {"a"}, "a thing")
