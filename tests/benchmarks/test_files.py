"""A half-written file never looks whole."""

import pytest

from benchmarks.files import write_json


def test_replaces_only_on_success(tmp_path):
    path = tmp_path / "folder" / "x.json"
    write_json(path, {"a": 1})
    assert path.read_text() == '{\n "a": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
