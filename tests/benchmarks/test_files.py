"""A half-written file never looks whole."""

import os

import pytest

from benchmarks.files import misfit, read_json, write_json


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
    assert read_json(path, {"a": int}, "a thing") == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match=r"x\.json does not .* thing: it must have c$"):
        read_json(path, {"a": int, "c": int}, "a thing")
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"a thing: it must be an object, got \[\]$"):
        read_json(path, {"a": int}, "a thing")
    path.write_text("{")
    with pytest.raises(ValueError, match=r"x\.json is not JSON: Expecting"):
        read_json(path, {"a": int}, "a thing")
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"x\.json is not JSON: 'utf-8' codec"):
        read_json(path, {"a": int}, "a thing")


@pytest.mark.parametrize(
    ("value", "shape", "wrong"),
    [
        (1, float, None),
        (None, float | None, None),
        (2, float | None, None),
        ({"b": None, "more": 1}, {"b": str | None}, None),
        ({"a": [1, 2.5]}, {str: [float]}, None),
        (True, int, "it must be a whole number, got True"),
        (1.5, int | None, "it must be a whole number or null, got 1.5"),
        ("x", float, "it must be a number, got 'x'"),
        ({}, list, "it must be a list, got {}"),
        ({"a": {}}, {"a": {"b": int, "c": int}}, "a must have b, c"),
        ({"a": [{"b": 1}, {"b": ""}]}, {str: [{"b": int}]}, "a.1.b must be a whole"),
    ],
)
def test_what_is_wrong_with_a_value_is_told(value, shape, wrong):
    found = misfit(value, shape)
    assert found == wrong or found.startswith(wrong)
