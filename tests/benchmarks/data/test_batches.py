"""Batches are a pure function of seed, epoch and number, and cover everything once."""

import threading

import numpy as np
import pytest

from benchmarks.data import (
    Graph,
    GraphPipeline,
    ImagePipeline,
    Pipeline,
    Split,
    Text,
    TextPipeline,
)
from benchmarks.data.containers import make_images
from benchmarks.data.graphs import adjacency


def numbered(count=23, height=6, width=5, channels=2):
    """Images whose pixels tell their number, at label and in the first pixel."""
    images = np.arange(count * height * width * channels) * 7 % 256
    images = images.astype(np.uint8).reshape(count, height, width, channels)
    labels = np.arange(count, dtype=np.int32)
    test = Split(images[:7], labels[:7])
    return make_images(Split(images, labels), test, count)


def text(size=200):
    tokens = np.arange(size).astype(np.uint8)
    return Text(tokens, tokens[:50], tuple(map(chr, range(256))))


def graph(nodes=40):
    """A ring, and two nodes alone at the end."""
    ring = np.arange(nodes - 2)
    offsets, neighbours = adjacency(nodes, ring, np.roll(ring, 1))
    numbers = np.arange(nodes, dtype=np.int32)
    return Graph(
        np.eye(nodes, dtype=np.float32),
        numbers % 3,
        offsets,
        neighbours,
        numbers[:17],
        numbers[17:30],
        numbers[30:],
        3,
    )


def pipelines(seed=0) -> list[Pipeline]:
    return [
        ImagePipeline(numbered(), 5, seed, augment=True, validation=6),
        TextPipeline(text(), 4, 8, seed, validation=60),
        GraphPipeline(graph(), 4, (3, 2), seed),
    ]


def same(one, two):
    assert one.keys() == two.keys()
    for key in one:
        assert one[key].dtype == two[key].dtype
        np.testing.assert_array_equal(one[key], two[key])


def differ(one, two) -> bool:
    return any((one[key] != two[key]).any() for key in one)


each = pytest.mark.parametrize("which", range(3), ids=["images", "text", "graph"])


@each
def test_batches_can_be_made_again_in_any_order(which):
    one, two = pipelines()[which], pipelines()[which]
    places = [(e, s) for e in range(3) for s in range(one.steps_per_epoch)]
    batches = {place: one.train_batch(*place) for place in places}
    for place in reversed(places):
        same(two.train_batch(*place), batches[place])


@each
def test_rows_are_rows(which):
    pipeline = pipelines()[which]
    for step in range(pipeline.steps_per_epoch):
        whole = pipeline.train_batch(1, step)
        for rows in (slice(0, 2), slice(2, None), slice(1, 4, 2)):
            part = pipeline.train_batch(1, step, rows)
            same(part, {key: value[rows] for key, value in whole.items()})
    for part in ("train", "validation", "test"):
        whole = list(pipeline.evaluation(part))
        rows = slice(1, 3)
        halves = list(pipeline.evaluation(part, rows))
        for one, two in zip(whole, halves, strict=True):
            same({key: value[rows] for key, value in one.items()}, two)


@each
def test_seeds_and_epochs_differ(which):
    one, two = pipelines(0)[which], pipelines(1)[which]
    assert differ(one.train_batch(0, 0), two.train_batch(0, 0))
    assert differ(one.train_batch(0, 0), one.train_batch(1, 0))


@each
def test_evaluation_depends_on_no_seed(which):
    one, two = pipelines(0)[which], pipelines(1)[which]
    for part in ("train", "validation", "test"):
        for a, b in zip(one.evaluation(part), two.evaluation(part), strict=True):
            same(a, b)


@each
def test_evaluation_batches_are_full(which):
    pipeline = pipelines()[which]
    names = {*pipeline.train_batch(0, 0), "weight"}
    for part in ("train", "validation", "test"):
        batches = list(pipeline.evaluation(part))
        for batch in batches:
            assert batch.keys() == names
            assert {len(value) for value in batch.values()} == {pipeline.batch_size}
            assert batch["weight"].dtype == np.float32
        weights = np.concatenate([batch["weight"] for batch in batches])
        # Ones, then fewer zeros than make a batch.
        assert (np.diff(weights) <= 0).all()
        assert 0 <= (weights == 0).sum() < pipeline.batch_size


@each
def test_bad_arguments(which):
    pipeline = pipelines()[which]
    last = pipeline.steps_per_epoch - 1
    for place in ((-1, 0), (0, -1), (0, last + 1)):
        with pytest.raises(ValueError, match=f"step from 0 to {last}, not"):
            pipeline.train_batch(*place)
    with pytest.raises(ValueError, match="part must be one of train, validation, test"):
        pipeline.evaluation("valid")


@each
def test_threads(which):
    pipeline, reference = pipelines()[which], pipelines()[which]
    failures = []

    def run(n):
        for epoch in range(n, n + 4):
            for step in range(pipeline.steps_per_epoch):
                if differ(
                    pipeline.train_batch(epoch, step),
                    reference.train_batch(epoch, step),
                ):
                    failures.append((epoch, step))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_images_come_once_an_epoch():
    pipeline = ImagePipeline(numbered(), 5, 3)
    assert pipeline.steps_per_epoch == 5
    assert pipeline.constants == {}
    orders = []
    for epoch in range(3):
        batches = [pipeline.train_batch(epoch, step) for step in range(5)]
        labels = np.concatenate([batch["label"] for batch in batches])
        assert sorted(labels[:23]) == list(range(23))
        # The last batch is filled up from the start.
        np.testing.assert_array_equal(labels[23:], labels[:2])
        orders.append(tuple(labels))
    assert len(set(orders)) == 3


def test_batches_never_change():
    batch = ImagePipeline(numbered(), 5, 0, augment=True).train_batch(0, 0)
    assert batch["label"].tolist() == [0, 1, 17, 13, 9]
    assert batch["image"].sum((1, 2, 3)).tolist() == [1174, 1676, 4484, 1372, 1752]
    batch = GraphPipeline(graph(), 2, (3, 1)).train_batch(0, 0)
    assert batch["hop1"].tolist() == [[37, 37, 1], [0, 2, 0]]


def test_a_batch_larger_than_the_set():
    pipeline = ImagePipeline(numbered(3), 8, 0)
    labels = pipeline.train_batch(0, 0)["label"]
    assert pipeline.steps_per_epoch == 1
    assert sorted(labels[:3]) == [0, 1, 2]
    assert labels.tolist() == [*labels[:3], *labels[:3], *labels[:2]]
    [batch] = pipeline.evaluation("train")
    assert batch["weight"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_without_augmentation_images_are_as_they_are():
    images = numbered()
    pipeline = ImagePipeline(images, 5, 0)
    batch = pipeline.train_batch(0, 1)
    np.testing.assert_array_equal(batch["image"], images.train.images[batch["label"]])
    assert batch["image"].dtype == np.uint8
    assert batch["label"].dtype == np.int32


def crops(image: np.ndarray) -> list[np.ndarray]:
    """Every crop of an image that augmentation may give, one pixel at a time."""
    height, width, _ = image.shape
    out = []
    for top in range(9):
        for left in range(9):
            crop = np.zeros_like(image)
            for row in range(height):
                for column in range(width):
                    y, x = row + top - 4, column + left - 4
                    if 0 <= y < height and 0 <= x < width:
                        crop[row, column] = image[y, x]
            out += [crop, crop[:, ::-1]]
    return out


def test_augmentation_crops_and_mirrors():
    images = numbered(2, 9, 8, 1)
    pipeline = ImagePipeline(images, 2, 0, augment=True)
    allowed = [
        {crop.tobytes(): n for n, crop in enumerate(crops(image))}
        for image in images.train.images
    ]
    assert [len(crops) for crops in allowed] == [162, 162]
    seen = np.zeros((2, 162), int)
    for epoch in range(800):
        batch = pipeline.train_batch(epoch, 0)
        for image, label in zip(batch["image"], batch["label"], strict=True):
            seen[label, allowed[label][image.tobytes()]] += 1
    counts = seen.sum(0)
    # Each of the 162 about ten times, and independently for the two images.
    assert (counts > 0).all()
    assert counts.max() < 30
    assert abs(counts[::2].sum() - 800) < 5 * np.sqrt(1600 / 4)
    assert (seen[0] != seen[1]).any()


def test_augmentation_is_that_of_the_example_not_of_its_place():
    images = numbered()
    small = ImagePipeline(images, 3, 0, augment=True)
    large = ImagePipeline(images, 23, 0, augment=True)
    whole = large.train_batch(2, 0)
    by_label = dict(zip(whole["label"].tolist(), whole["image"], strict=True))
    batch = small.train_batch(2, 4)
    for image, label in zip(batch["image"], batch["label"].tolist(), strict=True):
        np.testing.assert_array_equal(image, by_label[label])


def test_validation_is_set_aside_for_every_seed():
    images = numbered()
    aside = None
    for seed in range(3):
        pipeline = ImagePipeline(images, 4, seed, augment=True, validation=6)
        found = {
            part: np.concatenate(
                [b["label"][b["weight"] > 0] for b in pipeline.evaluation(part)]
            ).tolist()
            for part in ("train", "validation", "test")
        }
        assert sorted(found["train"] + found["validation"]) == list(range(23))
        assert len(found["validation"]) == 6
        assert found["test"] == list(range(7))
        assert aside in (None, found["validation"])
        aside = found["validation"]
        trained = {
            int(label)
            for step in range(pipeline.steps_per_epoch)
            for label in pipeline.train_batch(0, step)["label"]
        }
        assert trained == set(found["train"])
    assert aside != list(range(6))


def test_evaluation_does_not_augment():
    images = numbered()
    pipeline = ImagePipeline(images, 4, 0, augment=True, validation=6)
    for part in ("train", "validation"):
        for batch in pipeline.evaluation(part):
            expected = images.train.images[batch["label"]]
            np.testing.assert_array_equal(batch["image"], expected)


def test_images_refuse():
    with pytest.raises(ValueError, match="validation must be from 0 to 22, not 23"):
        ImagePipeline(numbered(), 4, 0, validation=23)
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        ImagePipeline(numbered(), 0, 0)
    with pytest.raises(ValueError, match="the part 'validation' has no examples"):
        ImagePipeline(numbered(), 4, 0).evaluation("validation")


def test_text_windows_follow_each_other():
    pipeline = TextPipeline(text(), 4, 8, 0)
    # 200 tokens hold 24 windows behind any offset up to 7.
    assert pipeline.steps_per_epoch == 6
    offsets = set()
    for epoch in range(40):
        batches = [pipeline.train_batch(epoch, step)["tokens"] for step in range(6)]
        tokens = np.concatenate(batches)
        assert tokens.dtype == np.int32
        assert tokens.shape == (24, 9)
        np.testing.assert_array_equal(np.diff(tokens, axis=1), 1)
        starts = np.sort(tokens[:, 0])
        np.testing.assert_array_equal(np.diff(starts), 8)
        offsets.add(int(starts[0]))
    assert offsets == set(range(8))


def test_text_evaluation_predicts_every_token_once():
    pipeline = TextPipeline(text(), 4, 7, 0, validation=60)
    bounds = {"train": (0, 140), "validation": (140, 200), "test": (0, 50)}
    for part, (start, end) in bounds.items():
        windows = np.concatenate(
            [b["tokens"][b["weight"] > 0] for b in pipeline.evaluation(part)]
        )
        predicted = windows[:, 1:].reshape(-1)
        count = (end - start - 1) // 7 * 7
        np.testing.assert_array_equal(
            predicted, np.arange(start + 1, start + 1 + count)
        )


def test_text_never_trains_on_validation():
    pipeline = TextPipeline(text(), 4, 8, 0, validation=60)
    for epoch in range(20):
        for step in range(pipeline.steps_per_epoch):
            assert pipeline.train_batch(epoch, step)["tokens"].max() < 140


def test_text_refuses():
    with pytest.raises(ValueError, match="length must be at least 1, not 0"):
        TextPipeline(text(), 4, 0, 0)
    with pytest.raises(ValueError, match="has 200 tokens: too few for length=101"):
        TextPipeline(text(), 4, 101, 0)
    with pytest.raises(ValueError, match="length=8 and validation=190"):
        TextPipeline(text(), 4, 8, 0, validation=190)
    assert TextPipeline(text(), 1, 100, 0).train_batch(3, 0)["tokens"].shape == (1, 101)


def test_graph_samples_are_neighbours():
    data = graph()
    pipeline = GraphPipeline(data, 5, (4, 3), 0)
    assert pipeline.constants["features"] is data.features
    assert pipeline.steps_per_epoch == 4
    near = {
        n: set(data.neighbours[data.offsets[n] : data.offsets[n + 1]].tolist()) or {n}
        for n in range(40)
    }
    seen = {n: set() for n in range(40)}
    batches = [pipeline.train_batch(e, s) for e in range(5) for s in range(4)]
    for batch in [*batches, *pipeline.evaluation("test")]:
        assert batch["hop1"].shape == (5, 4)
        assert batch["hop2"].shape == (5, 4, 3)
        for key in ("node", "hop1", "hop2", "label"):
            assert batch[key].dtype == np.int32
        np.testing.assert_array_equal(batch["label"], data.labels[batch["node"]])
        for node, first, second in zip(
            batch["node"].tolist(), batch["hop1"], batch["hop2"], strict=True
        ):
            seen[node] |= set(first.tolist())
            for neighbour, theirs in zip(first.tolist(), second, strict=True):
                assert neighbour in near[node]
                assert set(theirs.tolist()) <= near[neighbour]
    # Every neighbour of a node to train is drawn at some time.
    for node in data.train.tolist():
        assert seen[node] == near[node]
    assert seen[39] == {39}


def test_graph_evaluation_depends_on_the_node_alone():
    data = graph()
    small, large = (GraphPipeline(data, size, (4, 3)) for size in (2, 13))
    [whole] = large.evaluation("validation")
    parts = list(small.evaluation("validation"))
    joined = {key: np.concatenate([b[key] for b in parts])[:13] for key in whole}
    same(joined, whole)


def test_a_graph_without_edges():
    offsets, neighbours = adjacency(40, np.zeros(0, int), np.zeros(0, int))
    data = graph()._replace(offsets=offsets, neighbours=neighbours)
    batch = GraphPipeline(data, 4, (3, 2)).train_batch(0, 0)
    np.testing.assert_array_equal(batch["hop1"], batch["node"][:, None].repeat(3, 1))
    assert (batch["hop2"] == batch["node"][:, None, None]).all()


def test_the_number_of_examples_to_train_on():
    # 23 images less 6 for validation, windows behind any offset, nodes.
    assert [pipeline.train_size for pipeline in pipelines()] == [17, 16, 17]


def test_graph_refuses():
    with pytest.raises(ValueError, match="fanout must be two numbers of at least 1"):
        GraphPipeline(graph(), 4, (3, 0))
    empty = graph()._replace(train=np.zeros(0, np.int32))
    with pytest.raises(ValueError, match="no examples to train on"):
        GraphPipeline(empty, 4)
