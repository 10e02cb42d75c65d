"""What is published: the wheel, the source archive and the page of the package."""

import email
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml

import ctagd_optax

ROOT = pathlib.Path(__file__).parent.parent
VERSION = ctagd_optax.__version__
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    [path] = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    name = f"ctagd_optax-{VERSION}.dist-info/METADATA"
    return email.message_from_string(wheel.read(name).decode())


def test_one_version(metadata):
    assert metadata["Version"] == VERSION
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    [latest, *_] = re.findall(
        r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE
    )
    assert latest == VERSION


def test_the_wheel_has_the_library_alone(wheel):
    names = wheel.namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {"ctagd_optax", f"ctagd_optax-{VERSION}.dist-info"}
    assert {"ctagd_optax/py.typed", "ctagd_optax/testbed/explore.html"} <= set(names)


def test_the_source_archive_is_small_and_its_tests_need_nothing_else(built):
    [path] = built.glob("*.tar.gz")
    assert path.stat().st_size < 500_000
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert {"LICENSE", "pyproject.toml", "tests/conftest.py"} <= set(names)
        assert not [
            n for n in names if n.startswith(("benchmarks", "docs", "examples"))
        ]
        for name in archive.getnames():
            if re.search(r"/tests/.*test_\w+\.py", name):
                text = archive.extractfile(name).read().decode()
                assert not re.search(r"^(from|import) benchmarks", text, re.MULTILINE)
                assert '"docs"' not in text, name


def test_links_lead_somewhere_on_the_package_index(metadata):
    text = metadata.get_payload()
    repository = PROJECT["urls"]["Source"]
    here = f"{repository}/blob/v{VERSION}/"
    raw = here.replace("github.com", "raw.githubusercontent.com").replace("/blob", "")
    links = re.findall(r"\]\(([^)]+)\)", text)
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert all(link.startswith("https://") for link in links + pictures)
    assert all(picture.startswith(raw) for picture in pictures)
    ours = [link.removeprefix(here) for link in links if link.startswith(here)]
    ours += [picture.removeprefix(raw) for picture in pictures]
    assert len(ours) > 10
    for name in ours:
        assert (ROOT / name.partition("#")[0]).exists(), name
    assert "pip install ctagd-optax" in text.splitlines()


def test_the_workflow_runs_the_pythons_that_are_named():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "3." in c]
    assert pythons == named
    assert PROJECT["requires-python"] == f">={pythons[0]}"
