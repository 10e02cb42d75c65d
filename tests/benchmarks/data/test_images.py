"""Every format of images is read exactly, and damage is named."""

import gzip
import importlib.util

import numpy as np
import pytest
from PIL import Image

from benchmarks.data import Images, Split, cut, load, synthetic
from benchmarks.data.containers import make_images
from benchmarks.data.images import _sklearn_digits
from tests.benchmarks.data import official


def check(images: Images, shape, train, test, classes):
    assert images.train.images.shape == (train, *shape)
    assert images.test.images.shape == (test, *shape)
    assert images.classes == classes
    for split in (images.train, images.test):
        assert split.images.dtype == np.uint8
        assert split.labels.dtype == np.int32
        assert split.labels.shape == split.images.shape[:1]
        assert split.labels.min() >= 0
        assert split.labels.max() < classes
    scaled = images.train.images.astype(np.float64) / 255
    np.testing.assert_allclose(images.mean, scaled.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(images.std, scaled.std((0, 1, 2)), rtol=1e-9)


def test_cifar10(tmp_path):
    rows = official.cifar10(tmp_path / "cifar-10-batches-py")
    images = load("cifar10", tmp_path, download=False)
    check(images, (32, 32, 3), 20, 4, 10)
    assert images.train.labels.tolist() == [n % 10 for n in range(20)]
    # A row has all of red, then green, then blue.
    assert images.train.images[5, 2, 7, 1] == rows[5, 1024 + 2 * 32 + 7]
    assert images.test.images[3, 31, 0, 2] == rows[23, 2048 + 31 * 32]


def test_cifar100_has_fine_labels(tmp_path):
    official.cifar100(tmp_path / "cifar-100-python")
    images = load("cifar100", tmp_path, download=False)
    check(images, (32, 32, 3), 6, 3, 100)
    assert images.train.labels.tolist() == [99, 98, 97, 96, 95, 94]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"data": official.pixels(2, 3072)}, "KeyError"),
        ({"data": official.pixels(2, 3071), "labels": [0, 1]}, r"\(2, 3071\)"),
        ({"data": official.pixels(2, 3072), "labels": [0]}, r"\(2, 3072\)"),
        ({"data": official.pixels(2, 3072), "labels": [0, 10]}, "from 0 to 10, not"),
        ({"data": np.zeros((1, 3072), "<f4"), "labels": [0]}, "float32"),
        ({"data": [1], "labels": [0]}, "is not a batch of CIFAR"),
        ([1, 2], "is not a batch of CIFAR"),
        ({"data": official.pixels(0, 3072), "labels": []}, "no list of labels"),
    ],
)
def test_a_damaged_batch(tmp_path, batch, message):
    folder = tmp_path / "cifar-10-batches-py"
    official.cifar10(folder)
    (folder / "data_batch_3").write_bytes(official.pickled(batch))
    with pytest.raises(ValueError, match=f"data_batch_3.*{message}"):
        load("cifar10", tmp_path, download=False)


def test_a_truncated_batch(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    official.cifar10(folder)
    path = folder / "test_batch"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="test_batch is refused"):
        load("cifar10", tmp_path, download=False)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx(tmp_path, packed, name):
    official.mnist(tmp_path / name.replace("_", "-"), packed)
    images = load(name, tmp_path, download=False)
    check(images, (28, 28, 1), 20, 10, 10)
    np.testing.assert_array_equal(
        images.train.images[..., 0], official.pixels(20, 28, 28)
    )
    assert images.test.labels.tolist() == list(range(10))


LABELS = np.arange(20, dtype=np.uint8) % 10


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (gzip.compress(official.idx(LABELS))[:-9], "not a whole idx file"),
        (gzip.compress(official.idx(LABELS)[:-1]), r"its shape is \(20,\)"),
        (gzip.compress(official.idx(LABELS) + b"x"), r"its shape is \(20,\)"),
        (gzip.compress(official.idx(LABELS[None])), "header is not that of 1"),
        (gzip.compress(b"\0\0"), "not a whole idx file"),
        (b"<html>", "not a whole idx file"),
        (gzip.compress(official.idx(LABELS[:10])), "10 labels for 20 images"),
        (gzip.compress(official.idx(LABELS + np.uint8(1))), "from 1 to 10"),
    ],
    # Not the contents: gzip writes the time into them, and workers must agree on names.
    ids=["cut", "short", "long", "cube", "tiny", "html", "few", "labels"],
)
def test_a_damaged_idx(tmp_path, contents, message):
    official.mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(contents)
    with pytest.raises(ValueError, match=f"train-labels-idx1-ubyte.gz .*{message}"):
        load("mnist", tmp_path, download=False)


def test_tiny_imagenet(tmp_path):
    official.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    images = load("tiny_imagenet", tmp_path, download=False)
    check(images, (64, 64, 3), 4, 3, 2)
    # The names decide the numbers, not their order in the list.
    assert images.train.labels.tolist() == [0, 0, 1, 1]
    assert images.test.labels.tolist() == [0, 1, 0]
    colors = images.train.images[:, 32, 32].astype(int)
    expected = [[200, 100, 0], [90] * 3, [200, 100, 50], [91] * 3]
    assert np.abs(colors - expected).max() <= 3
    assert np.abs(images.test.images[2].astype(int) - 20).max() <= 3


def test_a_new_image_is_noticed(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    official.tiny_imagenet(root)
    load("tiny_imagenet", tmp_path, download=False)
    image = Image.new("RGB", (64, 64))
    image.save(root / "train" / "n01" / "images" / "n01_2.JPEG")
    images = load("tiny_imagenet", tmp_path, download=False)
    assert images.train.labels.tolist() == [0, 0, 0, 1, 1]


def half(path):
    contents = path.read_bytes()
    path.write_bytes(contents[: len(contents) // 2])


def other_size(path):
    Image.new("RGB", (64, 32)).save(path)


def not_an_image(path):
    path.write_text("hello")


@pytest.mark.parametrize("damage", [half, other_size, not_an_image])
def test_a_damaged_jpeg(tmp_path, damage):
    root = tmp_path / "tiny-imagenet-200"
    official.tiny_imagenet(root)
    damage(root / "val" / "images" / "val_1.JPEG")
    with pytest.raises(ValueError, match=r"val_1\.JPEG is not a JPEG of 64 by 64"):
        load("tiny_imagenet", tmp_path, download=False)


def test_an_unknown_class(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    official.tiny_imagenet(root)
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\n")
    with pytest.raises(ValueError, match=r"the class 'n99', not in wnids\.txt"):
        load("tiny_imagenet", tmp_path, download=False)


def test_no_images(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    official.tiny_imagenet(root)
    (root / "val" / "val_annotations.txt").write_text("")
    with pytest.raises(ValueError, match=r"val_annotations\.txt is empty"):
        load("tiny_imagenet", tmp_path, download=False)
    (root / "wnids.txt").write_text("n01\nn02\nn03\n")
    with pytest.raises(ValueError, match="n03 has no images"):
        load("tiny_imagenet", tmp_path, download=False)


def test_digits_are_scikit_learns(monkeypatch):
    ours = _sklearn_digits()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for found, expected in zip(ours, _sklearn_digits(), strict=True):  # by its loader
        np.testing.assert_array_equal(found, expected)


def test_digits():
    images = load("digits")
    check(images, (8, 8, 1), 1497, 300, 10)
    assert images.train.images.max() == 255
    assert len(np.unique(images.train.images)) == 17
    # The split never changes.
    assert images.test.labels[:8].tolist() == [9, 7, 1, 5, 1, 9, 5, 5]


def test_synthetic():
    options = {"train": 300, "test": 200, "shape": (12, 10, 2), "classes": 7}
    images = synthetic(**options)
    check(images, (12, 10, 2), 300, 200, 7)
    again, other = synthetic(**options), synthetic(**options, seed=1)
    np.testing.assert_array_equal(images.train.images, again.train.images)
    assert (images.train.images != other.train.images).mean() > 0.9
    assert len(np.unique(images.train.images.reshape(300, -1), axis=0)) == 300
    assert load("synthetic", **options).mean == images.mean


def test_synthetic_can_be_learnt():
    images = synthetic(shape=(8, 8, 1))
    pixels, labels = images.train.images.astype(float), images.train.labels
    means = np.stack([pixels[labels == c].mean(0) for c in range(10)])
    distance = ((images.test.images[:, None] - means) ** 2).sum((2, 3, 4))
    assert (distance.argmin(1) == images.test.labels).mean() > 0.95


def test_synthetic_never_changes():
    images = synthetic(train=2, test=1, shape=(4, 4, 1), classes=2)
    assert images.train.images[1, 0, :, 0].tolist() == [83, 37, 129, 174]


def test_synthetic_bad_sizes():
    with pytest.raises(ValueError, match="must be at least 1"):
        synthetic(train=0)


def small(side=4, count=30):
    labels = np.asarray([0, 0, 1, 2, 1, 2] * (count // 6), np.int32)
    split = Split(official.pixels(count, side, side, 3), labels)
    return make_images(split, split, 3)


def test_cut_takes_the_first_of_each_class():
    images = small()
    out = cut(images, train=7, test=3)
    check(out, (4, 4, 3), 7, 3, 3)
    # Three of class 0, two of the others, in the order of the file.
    rows = [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(out.train.images, images.train.images[rows])
    assert out.train.labels.tolist() == [0, 0, 1, 2, 1, 2, 0]
    assert out.test.labels.tolist() == [0, 1, 2]


def test_cut_keeps_everything_by_default():
    images = small()
    out = cut(images)
    np.testing.assert_array_equal(out.train.images, images.train.images)
    assert out.mean == images.mean


def test_cut_classes():
    out = cut(small(), classes=2, test=4)
    assert out.classes == 2
    assert sorted(set(out.train.labels.tolist())) == [0, 1]
    assert np.bincount(out.test.labels).tolist() == [2, 2]


@pytest.mark.parametrize(("side", "resolution"), [(32, 16), (28, 14), (64, 16), (6, 2)])
def test_cut_resolution_is_the_rounded_mean(side, resolution):
    images = small(side, 6)
    out = cut(images, resolution=resolution)
    check(out, (resolution, resolution, 3), 6, 6, 3)
    factor = side // resolution
    for n, row, column, channel in ((0, 0, 0, 0), (5, 1, 0, 2), (3, 1, 1, 1)):
        patch = images.train.images[
            n,
            row * factor : (row + 1) * factor,
            column * factor : (column + 1) * factor,
            channel,
        ]
        expected = int(np.floor(patch.mean() + 0.5))
        assert out.train.images[n, row, column, channel] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": 0}, "train must be at least 1, not 0"),
        ({"test": 31}, "test=31 needs 11 examples of class 0, and there are 10"),
        ({"resolution": 3}, "resolution must divide the side .* not 3 of 4 by 4"),
        ({"resolution": 8}, "resolution must divide"),
        ({"classes": 4}, "classes must be from 1 to 3, not 4"),
        ({"classes": 0}, "classes must be from 1 to 3, not 0"),
    ],
)
def test_cut_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        cut(small(), **options)
