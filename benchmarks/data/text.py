"""Text as characters."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.data.containers import Text


def read_text(path: str | os.PathLike[str]) -> Text:
    """Any UTF-8 text file: the first 90 % of its characters to train, the rest to test.

    The vocabulary has the characters of the whole file, in the order of their numbers.
    """
    try:
        contents = Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a UTF-8 text: {error}") from error
    if len(contents) < 2:
        raise ValueError(f"{path} has less than two characters")
    points = np.frombuffer(contents.encode("utf-32-le"), "<u4")
    found, tokens = np.unique(points, return_inverse=True)
    tokens = tokens.astype(np.uint8 if len(found) <= 256 else np.int32)
    bound = len(tokens) * 9 // 10
    return Text(tokens[:bound], tokens[bound:], tuple(map(chr, found.tolist())))


def read_shakespeare(files: Mapping[str, Path]) -> Text:
    """The tiny Shakespeare."""
    return read_text(files["input.txt"])
