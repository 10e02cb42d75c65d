"""Text becomes numbers and back."""

import numpy as np
import pytest

from benchmarks.data import load, read_text


def decode(text, tokens):
    return "".join(text.vocabulary[n] for n in tokens)


def test_shakespeare(tmp_path):
    contents = "To be, or not to be\r\nthat is it!\n"
    folder = tmp_path / "tinyshakespeare"
    folder.mkdir()
    (folder / "input.txt").write_bytes(contents.encode())
    text = load("shakespeare", tmp_path, download=False)
    assert text.vocabulary == tuple(sorted(set(contents)))
    assert text.train.dtype == text.test.dtype == np.uint8
    assert len(text.train) == 9 * len(contents) // 10
    assert decode(text, text.train) + decode(text, text.test) == contents


def test_any_file_by_path(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("déjà vu 🙂", encoding="utf-8")
    text = load(str(path))
    assert "🙂" in text.vocabulary
    assert decode(text, text.test) == "🙂"


def test_a_large_vocabulary(tmp_path):
    contents = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    (tmp_path / "a.txt").write_text(contents, encoding="utf-8")
    text = read_text(tmp_path / "a.txt")
    assert text.train.dtype == np.int32
    assert decode(text, text.train) == contents[:270]


@pytest.mark.parametrize(
    ("contents", "message"),
    [(b"\xff\xfe", "is not a UTF-8 text"), (b"a", "less than two characters")],
)
def test_refused(tmp_path, contents, message):
    (tmp_path / "a.txt").write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        read_text(tmp_path / "a.txt")
