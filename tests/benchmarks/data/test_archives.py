"""Archives are unpacked whole, and only where they should be."""

import io
import tarfile
import zipfile

import pytest

from benchmarks.data.archives import extract


def make_zip(path, names, contents=b"contents"):
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, contents)
    return path


def make_tar(path, names):
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 8
            file.addfile(entry, io.BytesIO(b"contents"))
    return path


@pytest.mark.parametrize(
    ("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz")]
)
def test_takes_the_folder_inside(tmp_path, make, name):
    archive = make(tmp_path / name, ["set/x", "set/deep/y", "other/z"])
    extract(archive, tmp_path / "target", "set", limit=100)
    found = sorted(
        str(p.relative_to(tmp_path / "target"))
        for p in (tmp_path / "target").rglob("*")
    )
    assert found == ["deep", "deep/y", "x"]
    assert (tmp_path / "target" / "deep" / "y").read_bytes() == b"contents"
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, "target"]


def test_takes_everything(tmp_path):
    extract(make_zip(tmp_path / "a.zip", ["x"]), tmp_path / "target", limit=8)
    assert [p.name for p in (tmp_path / "target").iterdir()] == ["x"]


def refused(tmp_path, archive, message, inside=""):
    with pytest.raises(ValueError, match=message):
        extract(archive, tmp_path / "in" / "target", inside, limit=100)
    assert list((tmp_path / "in").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == [archive.name, "in"]


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/evil", "C:/evil", "..\\x"]
)
def test_a_zip_may_not_lead_outside(tmp_path, name):
    archive = make_zip(tmp_path / "a.zip", ["good", name])
    refused(tmp_path, archive, "leads outside")


def test_a_zip_may_not_link(tmp_path):
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    archive = make_zip(tmp_path / "a.zip", [entry], b"/etc/passwd")
    refused(tmp_path, archive, "'link' is no file and no folder")


def test_a_tar_may_not_lead_outside(tmp_path):
    archive = make_tar(tmp_path / "a.tar.gz", ["good", "../evil"])
    refused(tmp_path, archive, "outside")


def test_damage(tmp_path):
    whole = make_tar(tmp_path / "a.tar.gz", ["set/x"]).read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, tmp_path / "a.tar.gz", "cannot be unpacked")


def test_damaged_contents(tmp_path):
    archive = make_zip(tmp_path / "a.zip", ["x"])
    archive.write_bytes(archive.read_bytes().replace(b"contents", b"Contents"))
    refused(tmp_path, archive, "cannot be unpacked: Bad CRC")


def test_not_an_archive(tmp_path):
    (tmp_path / "a.zip").write_text("<html>")
    refused(tmp_path, tmp_path / "a.zip", "cannot be unpacked")


def test_lacks_the_folder(tmp_path):
    archive = make_zip(tmp_path / "a.zip", ["x"])
    refused(tmp_path, archive, "has no folder set", "set")
