"""The sets by name: where they come from, how to check them, and how to read them."""

import difflib
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import graphs, images, text
from benchmarks.data.archives import extract
from benchmarks.data.cache import cached
from benchmarks.data.containers import Graph, Images, Text, from_arrays, to_arrays
from benchmarks.data.fetch import FetchError, fetch, matches
from benchmarks.data.folders import data_folder, user_folder

Files = Mapping[str, Path]


class Remote(NamedTuple):
    """A file to download; checksum is None where nobody we trust publishes one."""

    address: str
    checksum: str | None

    @property
    def name(self) -> str:
        """The file's name."""
        return self.address.rsplit("/", 1)[-1]


class Source(NamedTuple):
    """A set that lies in files.

    Attributes:
      read: makes the set of its files, by their first names.
      folders: where it may lie: within the data folder, or absolute. Downloads go to
        the first.
      files: each file by its possible names.
      remotes: what to download: those very files, or one archive.
      inside: the folder in the archive that has the files; None if there is none.
      limit: bytes that the archive may unpack to, some more than the set has.
      sources: what the set is made of, to notice a change; its files if None.
      version: raised when the reader gives other arrays for the same files.
    """

    read: Callable[[Files], Images | Graph | Text]
    folders: tuple[str, ...]
    files: tuple[tuple[str, ...], ...]
    remotes: tuple[Remote, ...]
    inside: str | None = None
    limit: int = 0
    sources: Callable[[Files], list[Path]] | None = None
    version: int = 1


def _cifar(read: Callable, folder: str, files: str, archive: Remote) -> Source:
    names = tuple((name,) for name in files.split())
    # Both have 186 million bytes.
    return Source(read, (folder,), names, (archive,), folder, limit=1 << 28)


def _idx(folder: str, address: str, checksums: dict[str, str]) -> Source:
    return Source(
        images.read_idx,
        # The second is where Debian's packages put them.
        (folder, f"/usr/share/datasets/{folder}"),
        tuple((name, f"{name}.gz") for name in checksums),
        tuple(
            Remote(f"{address}/{name}.gz", f"md5:{checksum}")
            for name, checksum in checksums.items()
        ),
    )


def _planetoid(name: str, checksums: dict[str, str | None]) -> Source:
    address = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return Source(
        functools.partial(graphs.read_planetoid, name),
        ("planetoid",),
        tuple((f"ind.{name}.{kind}",) for kind in checksums),
        tuple(
            Remote(f"{address}/ind.{name}.{kind}", checksum and f"sha256:{checksum}")
            for kind, checksum in checksums.items()
        ),
    )


SOURCES: dict[str, Source] = {
    "cifar10": _cifar(
        images.read_cifar10,
        "cifar-10-batches-py",
        "data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch",
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "md5:c58f30108f718f92721af3b95e74349a",
        ),
    ),
    "cifar100": _cifar(
        images.read_cifar100,
        "cifar-100-python",
        "train test",
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "md5:eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
    "tiny_imagenet": Source(
        images.read_tiny_imagenet,
        ("tiny-imagenet-200",),
        (("wnids.txt",), ("val/val_annotations.txt",)),
        (
            Remote(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        "tiny-imagenet-200",
        limit=1 << 30,
        sources=images.tiny_imagenet_sources,
    ),
    "mnist": _idx(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": _idx(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cora": _planetoid(
        "cora",
        {
            "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "test.index": (
                "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"
            ),
        },
    ),
    "citeseer": _planetoid(
        "citeseer",
        {
            "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "test.index": (
                "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"
            ),
        },
    ),
    # No checksums are known: the reader checks that the files belong together.
    "pubmed": _planetoid(
        "pubmed",
        dict.fromkeys(("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")),
    ),
    "facebook": Source(
        graphs.read_facebook,
        ("facebook_large", "facebook-pages"),
        # The second names are those of the authors' own repository.
        (
            ("musae_facebook_edges.csv", "facebook_edges.csv"),
            ("musae_facebook_features.json", "facebook.json"),
            ("musae_facebook_target.csv", "facebook_target.csv"),
        ),
        # No checksum is known: the archive has its own, and the reader checks the rest.
        (Remote("https://snap.stanford.edu/data/facebook_large.zip", None),),
        "facebook_large",
        limit=1 << 28,
    ),
    "reddit": Source(
        graphs.read_reddit,
        ("reddit",),
        (("reddit_data.npz",), ("reddit_graph.npz",)),
        # No checksum is known: the archive has its own, and the reader checks the rest.
        (Remote("https://data.dgl.ai/dataset/reddit.zip", None),),
        "",
        limit=1 << 32,
    ),
    "shakespeare": Source(
        text.read_shakespeare,
        ("tinyshakespeare",),
        (("input.txt",),),
        (
            Remote(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                "tinyshakespeare/input.txt",
                "sha256:"
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
    ),
}

NAMES = ("digits", "synthetic", *SOURCES)


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    **options,
) -> Images | Graph | Text:
    """A set by name, or the text in a file by its path.

    It is read from the data folder, where its files lie as its authors pack them, or
    downloaded there. What was decoded once is kept, and mapped into memory.

    Args:
      name: one of NAMES, or the path of a text file.
      data_dir: the data folder; by default that of the environment variable
        CTAGD_DATA, else one in the user's cache.
      download: whether a missing set may be downloaded.
      **options: of the set "synthetic".

    Returns:
      The set.

    Raises:
      ValueError: there is no such set, or its files are damaged.
      FileNotFoundError: the set is missing and was not downloaded; the message says
        from where to have it and where to put it.
    """
    if name == "synthetic":
        return images.synthetic(**options)
    if options:
        raise TypeError(f"the set {name!r} takes no options, not {', '.join(options)}")
    if name == "digits":
        return images.digits()
    if name not in SOURCES:
        if Path(name).is_file():
            return text.read_text(name)
        close = difflib.get_close_matches(name, NAMES)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(
            f"there is no set and no text file {name!r}.{hint} "
            f"The sets are: {', '.join(NAMES)}"
        )
    source = SOURCES[name]
    folder = data_folder(data_dir)
    files = _obtain(name, source, folder, download)
    kept = f"{name}-{source.version}"
    arrays = cached(
        [folder / "cache" / kept, user_folder() / "cache" / kept],
        source.sources(files) if source.sources else files.values(),
        lambda: to_arrays(source.read(files)),
    )
    return from_arrays(arrays)


def _find(source: Source, folder: Path) -> dict[str, Path] | None:
    """The files of the first folder that has them all."""
    for place in source.folders:
        found = _present(source, folder / place)
        if len(found) == len(source.files):
            return found
    return None


def _present(source: Source, folder: Path) -> dict[str, Path]:
    found = {}
    for names in source.files:
        paths = [folder / n for n in names if (folder / n).is_file()]
        if paths:
            found[names[0]] = paths[0]
    return found


def _obtain(name: str, source: Source, folder: Path, download: bool) -> dict[str, Path]:
    """The files of a set, unpacked and downloaded as far as needed."""
    files = _find(source, folder)
    if files is not None:
        return files
    target = folder / source.folders[0]
    if source.inside is None:
        present = _present(source, target)
        for names, remote in zip(source.files, source.remotes, strict=True):
            if names[0] not in present:
                path = target / remote.name
                _download(
                    name, remote, path, f"put {remote.address} at {path}", download
                )
    else:
        _unpack(name, source, target, download)
    files = _find(source, folder)
    if files is None:
        raise ValueError(f"{target} is not the set {name!r}: files are missing")
    return files


def _unpack(name: str, source: Source, target: Path, download: bool) -> None:
    if target.exists():
        present = _present(source, target)
        missing = [names[0] for names in source.files if names[0] not in present]
        raise ValueError(
            f"{target} lacks {', '.join(missing)}: complete it, or remove it to have "
            f"the set {name!r} unpacked anew"
        )
    [remote] = source.remotes
    archive = target.with_name(remote.name)
    if not archive.is_file():
        advice = f"put {remote.address} at {archive}, or its contents at {target}"
        _download(name, remote, archive, advice, download)
    elif not matches(archive, remote.checksum):
        raise ValueError(
            f"{archive} does not have the checksum {remote.checksum}: remove it to "
            "have it downloaded anew"
        )
    extract(archive, target, source.inside or "", limit=source.limit)


def _download(
    name: str, remote: Remote, path: Path, advice: str, download: bool
) -> None:
    reason = "download is off"
    if download:
        try:
            return fetch(remote.address, path, checksum=remote.checksum)
        except FetchError as error:
            reason = str(error)
    raise FileNotFoundError(f"the set {name!r} is missing ({reason}): {advice}")
