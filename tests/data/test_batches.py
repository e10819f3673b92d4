"""Order, resuming, sharing between processes, and what a batch holds."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from proselflc.data.batches import Batch, Loader, Order, PadCropFlip, generator_for
from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling, pad_crop, placements
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.data.preprocessing import Standardization, TextHashing
from proselflc.errors import InputError


def names(n: int) -> tuple[str, ...]:
    return tuple(f"e{i}" for i in range(n))


def image_part(n: int, *, size: int = 6, channels: int = 3) -> Part:
    rng = np.random.default_rng(n)
    pixels = rng.integers(0, 256, (n, size, size, channels), dtype=np.uint8)
    return Part(Images(pixels), rng.integers(0, 5, n), names(n))


def image_loader(n: int, order: Order, *, augmented: bool = True) -> Loader:
    part = image_part(n)
    assert isinstance(part.inputs, Images)
    augmentation = PadCropFlip(2) if augmented else None
    return Loader(part, ImageScaling.fit(part.inputs), order, augmentation)


def equal(one: Iterator[Batch], other: Iterator[Batch]) -> int:
    """The number of batches, all of which are the same to the bit."""
    count = 0
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
        assert torch.equal(a.index, b.index)
        count += 1
    return count


def test_generator_is_a_fixed_function_of_its_key() -> None:
    # `printf order/3/7 | b2sum -l 64` is 86bd9f8006065ea2
    assert generator_for("order", 3, 7).initial_seed() == 0xA25E0606809FBD86 >> 1
    assert Order(5, 3).permutation(10, 7).tolist() == [6, 4, 3, 8, 5, 1, 2, 9, 0, 7]
    seeds = {generator_for("a", s, e).initial_seed() for s in range(30) for e in range(30)}
    assert len(seeds) == 900


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 25),
    world=st.integers(1, 5),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_shares_of_all_processes_are_the_batches_of_one(
    n: int,
    batch_size: int,
    world: int,
    shuffle: bool,
    drop_last: bool,
    epoch: int,
    data: st.DataObject,
) -> None:
    alone = Order(batch_size, 1, shuffle, drop_last)
    if drop_last and n < batch_size:
        with pytest.raises(InputError, match="not enough for one batch"):
            alone.count(n)
        return
    whole = [share.positions for share in alone.shares(n, epoch)]
    assert len(whole) == alone.count(n) == (n // batch_size if drop_last else -(-n // batch_size))
    assert all(len(batch) == batch_size for batch in whole[:-1])
    seen = np.concatenate(whole)
    kept = len(whole) * batch_size if drop_last else n
    assert len(seen) == len(np.unique(seen)) == kept
    if not shuffle:
        assert seen.tolist() == list(range(kept))

    start = data.draw(st.integers(0, len(whole)))
    ranks = [
        list(Order(batch_size, 1, shuffle, drop_last, (rank, world)).shares(n, epoch, start))
        for rank in range(world)
    ]
    assert all(len(shares) == len(whole) - start for shares in ranks)
    for number, shares in enumerate(zip(*ranks, strict=True), start):
        assert np.concatenate([s.positions for s in shares]).tolist() == whole[number].tolist()
        sizes = [len(s.positions) for s in shares]
        assert max(sizes) - min(sizes) <= 1
        assert [s.number for s in shares] == [number] * world
        assert [whole[number][s.rows].tolist() for s in shares] == [
            s.positions.tolist() for s in shares
        ]


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 25),
    world=st.integers(1, 5),
    epoch=st.integers(0, 3),
)
def test_shares_by_position_are_the_batches_of_one_and_keep_examples_apart(
    n: int, batch_size: int, world: int, epoch: int
) -> None:
    whole = list(Order(batch_size, 1).shares(n, epoch))
    ranks = [
        list(Order(batch_size, 1, shard=(rank, world), by_position=True).shares(n, epoch))
        for rank in range(world)
    ]
    for batch, *shares in zip(whole, *ranks, strict=True):
        for rank, share in enumerate(shares):
            assert (share.positions % world == rank).all()
            assert batch.positions[share.rows].tolist() == share.positions.tolist()
            assert (np.diff(share.rows) > 0).all()  # in the order of the whole batch
            assert len(share.rows) <= Order(batch_size, 1, by_position=True).largest_share
        rows = np.concatenate([share.rows for share in shares])
        assert sorted(rows) == list(range(batch.size))


@pytest.mark.parametrize("world", [2, 5])
def test_augmentation_is_the_same_however_examples_are_shared(world: int) -> None:
    whole = image_loader(26, Order(8)).batches(1)
    orders = [Order(8, shard=(rank, world), by_position=True) for rank in range(world)]
    ranks = [image_loader(26, order).batches(1) for order in orders]
    for batch, *shares in zip(whole, *ranks, strict=True):
        index = torch.cat([share.index for share in shares])
        back = {int(k): place for place, k in enumerate(index)}
        places = torch.tensor([back[int(k)] for k in batch.index])
        assert torch.equal(torch.cat([share.x for share in shares])[places], batch.x)
        assert torch.equal(torch.cat([share.y for share in shares])[places], batch.y)


def test_the_order_changes_with_epoch_and_seed_and_with_nothing_else() -> None:
    orders = {
        (seed, epoch): tuple(Order(7, seed).permutation(40, epoch).tolist())
        for seed in range(4)
        for epoch in range(4)
    }
    assert len(set(orders.values())) == 16
    state = torch.random.get_rng_state()
    torch.manual_seed(99)
    assert tuple(Order(13, 2, drop_last=True).permutation(40, 3).tolist()) == orders[2, 3]
    torch.random.set_rng_state(state)


def test_batches_leave_the_global_generators_alone() -> None:
    before = torch.random.get_rng_state()
    np.random.seed(5)
    list(image_loader(20, Order(6)).batches(1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.random.random() == np.random.RandomState(5).random()


def test_the_number_of_threads_is_what_it_was_while_a_batch_is_used() -> None:
    torch.set_num_threads(2)
    try:
        assert [torch.get_num_threads() for _ in image_loader(20, Order(6)).batches()] == [2] * 4
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_going_on_mid_epoch_gives_the_same_bits(start: int) -> None:
    loader = image_loader(50, Order(12, seed=4))
    full = list(loader.batches(2))
    assert len(full) == len(loader) == 5
    assert equal(iter(full[start:]), loader.batches(2, start=start)) == 5 - start


def test_augmentation_changes_with_the_epoch_and_the_batch() -> None:
    part = Part(
        Images(np.tile(np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1), (64, 1, 1, 1))),
        np.zeros(64, np.int64),
        names(64),
    )
    scaling = ImageScaling((0.0,), (1.0,), (6, 6), (6, 6))
    loader = Loader(part, scaling, Order(32), PadCropFlip(3))
    first, second = (batch.x for batch in loader.batches(0))
    (later, _) = (batch.x for batch in loader.batches(1))
    assert not torch.equal(first, second)
    assert not torch.equal(first, later)
    assert len({tuple(x.flatten().tolist()) for x in first}) > 20


def test_images_are_cropped_then_normalised_as_the_functions_do() -> None:
    loader = image_loader(20, Order(8, seed=3))
    assert isinstance(loader.part.inputs, Images)
    assert isinstance(loader.preprocessing, ImageScaling)
    for number, batch in enumerate(loader.batches(5)):
        pixels = torch.from_numpy(loader.part.inputs.pixels[batch.index.numpy()])
        generator = generator_for("augmentation", 3, 5, number)
        placement = placements(len(pixels), room=(4, 4), flip=True, generator=generator)
        cut = pad_crop(pixels.permute(0, 3, 1, 2), padding=2, placement=placement)
        mean, std = (
            torch.tensor(v, dtype=torch.float64)[:, None, None]
            for v in (loader.preprocessing.mean, loader.preprocessing.std)
        )
        assert_close(batch.x.double(), (cut.double() / 255 - mean) / std, atol=1e-5, rtol=1e-5)
        assert batch.x.dtype is torch.float32
        assert batch.x.is_contiguous()


def test_processes_augment_an_example_as_one_process_does() -> None:
    alone = list(image_loader(26, Order(8)).batches(1))
    ranks = [image_loader(26, Order(8, shard=(r, 3))).batches(1) for r in range(3)]
    for whole, *shares in zip(alone, *ranks, strict=True):
        assert torch.equal(torch.cat([s.x for s in shares]), whole.x)
        assert torch.equal(torch.cat([s.y for s in shares]), whole.y)
        assert torch.equal(torch.cat([s.index for s in shares]), whole.index)


def test_a_process_may_get_nothing_of_a_short_last_batch() -> None:
    loader = image_loader(9, Order(8, shard=(0, 4)))
    *_, last = loader.batches()
    assert last.x.shape == (0, 3, 6, 6)
    assert last.y.shape == last.index.shape == (0,)


def test_evaluation_is_in_order_and_not_augmented() -> None:
    loader = image_loader(20, Order(8, shuffle=False), augmented=False)
    x = torch.cat([batch.x for batch in loader.batches()])
    assert torch.equal(x, loader.preprocessing(loader.part.inputs))
    assert torch.cat([b.index for b in loader.batches()]).tolist() == list(range(20))


def test_labels_go_with_their_examples() -> None:
    loader = image_loader(30, Order(7))
    for x, y, index in loader.batches(3):
        assert y.dtype is index.dtype is torch.int64
        assert y.tolist() == loader.part.labels[index.numpy()].tolist()
        assert len(x) == len(y)


def test_channels_last_changes_the_memory_order_only() -> None:
    part = image_part(10)
    assert isinstance(part.inputs, Images)
    scaling = ImageScaling.fit(part.inputs)
    plain = Loader(part, scaling, Order(4), PadCropFlip(1))
    other = Loader(part, scaling, Order(4), PadCropFlip(1), channels_last=True)
    assert equal(plain.batches(), other.batches()) == 3
    x = next(other.batches()).x
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert not x.is_contiguous()


def test_a_read_only_memory_map_serves_without_a_copy(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4000, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    part = Part(Images(mapped), np.zeros(4000, np.int64), names(4000))
    tracemalloc.start()
    scaling = ImageScaling.fit(Images(mapped))
    loader = Loader(part, scaling, Order(64), PadCropFlip())
    rows = sum(len(batch.y) for batch in loader.batches())
    _, peak = tracemalloc.get_traced_memory()  # numpy's; torch holds one batch at a time
    tracemalloc.stop()
    assert rows == 4000
    assert peak < pixels.nbytes  # a float copy would take four times that
    again = next(Loader(part, scaling, Order(64), PadCropFlip()).batches())
    in_memory = Part(Images(pixels), part.labels, part.ids)
    assert torch.equal(
        again.x, next(Loader(in_memory, scaling, Order(64), PadCropFlip()).batches()).x
    )


def test_features_are_standardised() -> None:
    values = np.random.default_rng(1).normal(3, 2, (25, 4)).astype(np.float32)
    part = Part(Features(values), np.arange(25) % 3, names(25))
    loader = Loader(part, Standardization.fit(Features(values)), Order(10))
    for x, _, index in loader.batches():
        expected = (values - values.mean(0)) / values.std(0)
        np.testing.assert_allclose(x.numpy(), expected[index.numpy()], rtol=1e-4, atol=1e-5)
        assert x.dtype is torch.float32


def test_texts_are_bags_whatever_batch_they_are_in() -> None:
    texts = Texts(("the cat", "the dog sat", "", "a cat sat on the mat", "dog"))
    hashing = TextHashing.fit(texts, min_examples=1)
    part = Part(texts, np.zeros(5, np.int64), names(5))
    alone = [hashing(Texts((text,)))[0] for text in texts.texts]
    for x, _, index in Loader(part, hashing, Order(2)).batches():
        assert x.dtype is torch.int64
        for row, i in zip(x, index.tolist(), strict=True):
            assert torch.equal(row[row > 0], alone[i][alone[i] > 0])
            assert not row[int((row > 0).sum()) :].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch size must be at least 1, got 0"),
        ({"shard": (2, 2)}, r"0 ≤ rank < processes, got \(2, 2\)"),
        ({"shard": (-1, 2)}, "0 ≤ rank < processes"),
    ],
)
def test_impossible_orders_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Order(**arguments)  # type: ignore[arg-type]


def test_inputs_that_do_not_fit_are_refused() -> None:
    scaling = ImageScaling((0.5,) * 3, (0.2,) * 3, (6, 6), (6, 6))
    features = Part(Features(np.zeros((3, 2), np.float32)), np.zeros(3, np.int64), names(3))
    files = Part(ImageFiles((Path("a.png"),)), np.zeros(1, np.int64), names(1))
    with pytest.raises(InputError, match="made for images, got features"):
        Loader(features, scaling)
    with pytest.raises(InputError, match="FileLoader"):
        Loader(files, scaling)
    with pytest.raises(InputError, match="not images"):
        Loader(features, Standardization((0.0, 0.0), (1.0, 1.0)), augmentation=PadCropFlip())
    with pytest.raises(InputError, match="6×6 with 3 channels, got images of 8×8"):
        Loader(image_part(4, size=8), scaling)
    with pytest.raises(InputError, match="with 1"):
        Loader(image_part(4, channels=1), scaling)
    with pytest.raises(InputError, match="0 examples"):
        Loader(image_part(0), scaling)
