"""Files and shards: the same batches for any number of workers, bad images, resuming."""

import io
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.testing import assert_close

from proselflc.data import augment
from proselflc.data import streaming as streaming_module
from proselflc.data.batches import Batch, Order, generator_for
from proselflc.data.dataset import Bytes, ImageFiles, Images, Part
from proselflc.data.preprocessing import ImageScaling, warped
from proselflc.data.streaming import FileLoader, RandomCrop, ShardLoader, shard_samples
from proselflc.errors import InputError

# Three workers are asked for on purpose, however many cores there are.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SCALING = ImageScaling((0.5, 0.4, 0.3), (0.2, 0.25, 0.3), (12, 10), (16, 18))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def picture(i: int) -> Bytes:
    """[H, W, 3] smooth, of a size of its own."""
    rows, columns = np.mgrid[0 : 20 + i % 5, 0 : 24 + i % 3]
    return np.stack([rows * 5 + i, columns * 6, rows + columns + 3 * i], -1).astype(np.uint8)


def encoded(i: int, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture(i)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def part(tmp_path: Path) -> Part:
    paths = []
    for i in range(17):
        path = tmp_path / f"{i:02}.png"
        path.write_bytes(encoded(i))
        paths.append(path)
    ids = tuple(path.name for path in paths)
    return Part(ImageFiles(tuple(paths)), np.arange(17) % 4, ids)


def assert_equal(one: Iterable[Batch], other: Iterable[Batch]) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
        assert torch.equal(a.index, b.index)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batches_do_not_depend_on_the_number_of_workers(part: Part, workers: int) -> None:
    order = Order(4, seed=2)
    alone = list(FileLoader(part, SCALING, order, RandomCrop(), workers=0).batches(3))
    assert [len(batch.y) for batch in alone] == [4, 4, 4, 4, 1]
    assert_equal(alone, FileLoader(part, SCALING, order, RandomCrop(), workers=workers).batches(3))
    assert sorted(i for b in alone for i in b.index.tolist()) == list(range(17))
    assert all(b.y.tolist() == part.labels[b.index.numpy()].tolist() for b in alone)


def test_a_batch_is_warped_cropped_flipped_and_normalised(part: Part) -> None:
    assert isinstance(part.inputs, ImageFiles)
    loader = FileLoader(part, SCALING, Order(6, seed=5), RandomCrop(), workers=0)
    for number, batch in enumerate(loader.batches(1)):
        drawn = augment.placements(
            len(batch.y),
            room=(4, 8),
            flip=True,
            generator=generator_for("augmentation", 5, 1, number),
        )
        for row, i in enumerate(batch.index.tolist()):
            with Image.open(part.inputs.paths[i]) as image:
                small = np.asarray(image.resize((18, 16), Image.Resampling.BILINEAR))
            top, left = int(drawn.top[row]), int(drawn.left[row])
            cut = small[top : top + 12, left : left + 10]
            cut = cut[:, ::-1] if drawn.flip[row] else cut
            x = batch.x[row].numpy().transpose(1, 2, 0)
            bytes_again = (x * np.array(SCALING.std) + np.array(SCALING.mean)) * 255
            # Pillow may round the other way.
            assert np.abs(bytes_again - cut).max() < 1.01


def test_evaluation_is_the_middle_in_order_as_prediction_sees_it(part: Part) -> None:
    loader = FileLoader(part, SCALING, Order(5, shuffle=False), workers=2)
    x = torch.cat([batch.x for batch in loader.batches()])
    assert_close(x, SCALING(part.inputs), atol=0, rtol=0)
    assert [i for b in loader.batches() for i in b.index.tolist()] == list(range(17))


def test_going_on_mid_epoch_decodes_only_what_is_left(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = FileLoader(part, SCALING, Order(4), RandomCrop(), workers=0)
    full = list(loader.batches(1))
    opened = []

    def counting(source: Path | bytes, size: tuple[int, int], **options: Any) -> Bytes:
        opened.append(source)
        return warped(source, size, **options)

    monkeypatch.setattr(streaming_module, "warped", counting)
    assert_equal(full[3:], loader.batches(1, start=3))
    assert len(opened) == 5
    assert_equal([], loader.batches(1, start=len(loader)))


def test_what_is_held_of_a_batch_is_not_overwritten(part: Part) -> None:
    """Memory is used again, but only when no tensor looks at it any more."""
    loader = FileLoader(part, SCALING, Order(2), RandomCrop(), workers=0)
    views, copies, addresses = [], [], set()
    for number, batch in enumerate(loader.batches()):
        addresses.add(batch.x.data_ptr())
        if number % 3 == 0:
            views.append(batch.x[:1, 2])
            copies.append(batch.x[:1, 2].clone())
    del batch
    for view, copy in zip(views, copies, strict=True):
        assert torch.equal(view, copy)
    assert len(addresses) < 9


def test_little_shared_memory_changes_nothing(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = FileLoader(part, SCALING, Order(4), RandomCrop(), workers=2)
    plenty = list(loader.batches())
    looked = []

    def nothing_free(path: str) -> SimpleNamespace:
        looked.append(path)
        return SimpleNamespace(free=1000)

    monkeypatch.setattr("shutil.disk_usage", nothing_free)
    assert_equal(plenty, loader.batches())
    assert looked == ["/dev/shm"]


def test_processes_together_see_what_one_sees(part: Part) -> None:
    alone = FileLoader(part, SCALING, Order(6), RandomCrop(), workers=0).batches(2)
    ranks = [
        FileLoader(part, SCALING, Order(6, shard=(r, 4)), RandomCrop(), workers=0).batches(2)
        for r in range(4)
    ]
    for whole, *shares in zip(alone, *ranks, strict=True):
        assert torch.equal(torch.cat([s.x for s in shares]), whole.x)
        assert torch.equal(torch.cat([s.index for s in shares]), whole.index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_named(part: Part, workers: int) -> None:
    assert isinstance(part.inputs, ImageFiles)
    part.inputs.paths[7].write_bytes(encoded(7)[:47])
    loader = FileLoader(part, SCALING, Order(4), workers=workers)
    with pytest.raises(InputError, match=r'cannot read the image "07\.png": .*truncated') as caught:
        list(loader.batches())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_skipped_and_the_others_stay_as_they_were(part: Part, workers: int) -> None:
    assert isinstance(part.inputs, ImageFiles)
    before = list(FileLoader(part, SCALING, Order(4), RandomCrop(), workers=0).batches())
    part.inputs.paths[7].write_bytes(b"not an image")
    part.inputs.paths[11].unlink()
    loader = FileLoader(part, SCALING, Order(4), RandomCrop(), workers=workers, on_bad_image="skip")
    for old, new in zip(before, loader.batches(), strict=True):
        good = ~torch.isin(old.index, torch.tensor([7, 11]))
        assert torch.equal(new.index, old.index[good])
        assert torch.equal(new.x, old.x[good])
        assert torch.equal(new.y, old.y[good])
    list(loader.batches(1))
    assert sorted(skip.id for skip in loader.skipped) == ["07.png", "11.png"]
    assert {skip.id: skip.reason for skip in loader.skipped}["11.png"] == "there is no such file"


def test_a_batch_of_bad_images_is_empty_but_counted(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    paths = tuple(tmp_path / name for name in "abc")
    part = Part(ImageFiles(paths), np.zeros(3, np.int64), ("a", "b", "c"))
    loader = FileLoader(part, SCALING, Order(2), workers=0, on_bad_image="skip")
    shapes = [tuple(batch.x.shape) for batch in loader.batches()]
    assert shapes == [(0, 3, 12, 10), (0, 3, 12, 10)]
    assert len(loader.skipped) == 3


def test_the_global_generator_is_left_alone(part: Part) -> None:
    before = torch.random.get_rng_state()
    list(FileLoader(part, SCALING, Order(8), RandomCrop(), workers=1).batches())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_images_in_memory_are_not_for_a_file_loader() -> None:
    images = Part(Images(np.zeros((2, 12, 10, 3), np.uint8)), np.zeros(2, np.int64), ("a", "b"))
    with pytest.raises(InputError, match="in memory"):
        FileLoader(images, SCALING)


def write_shard(path: Path, samples: Sequence[tuple[str, dict[str, bytes]]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for key, members in samples:
            for suffix, content in members.items():
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, ...]:
    paths = []
    for s in range(4):
        samples = [
            (f"img{i:03}", {"png": encoded(i), "cls": str(i % 4).encode()})
            for i in range(5 * s, 5 * s + 5)
        ]
        paths.append(write_shard(tmp_path / f"shard-{s}.tar", samples))
    return tuple(paths)


def shard_loader(
    shards: tuple[Path, ...], order: Order, *, workers: int = 0, window: int = 6
) -> ShardLoader:
    ids, labels = shard_samples(shards)
    return ShardLoader(
        shards, ids, labels, SCALING, order, RandomCrop(), workers=workers, window=window
    )


def test_shards_are_listed_with_keys_and_classes(shards: tuple[Path, ...]) -> None:
    ids, labels = shard_samples(shards)
    assert ids == tuple(f"img{i:03}" for i in range(20))
    assert labels.tolist() == [i % 4 for i in range(20)]


def test_shards_in_order_are_the_files_in_order(shards: tuple[Path, ...], tmp_path: Path) -> None:
    paths = tuple(tmp_path / f"{i}.png" for i in range(20))
    for i, path in enumerate(paths):
        path.write_bytes(encoded(i))
    files = Part(ImageFiles(paths), np.arange(20) % 4, tuple(map(str, range(20))))
    order = Order(6, shuffle=False)
    assert_equal(
        FileLoader(files, SCALING, order, RandomCrop(), workers=0).batches(2),
        shard_loader(shards, order).batches(2),
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_shards_do_not_depend_on_the_number_of_workers(
    shards: tuple[Path, ...], workers: int
) -> None:
    order = Order(6, seed=1)
    alone = list(shard_loader(shards, order).batches(1))
    assert sorted(i for b in alone for i in b.index.tolist()) == list(range(20))
    assert_equal(alone, shard_loader(shards, order, workers=workers).batches(1))
    assert_equal(alone[2:], shard_loader(shards, order, workers=workers).batches(1, start=2))


def test_the_order_of_shards_follows_seed_and_epoch(shards: tuple[Path, ...]) -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        loader = shard_loader(shards, Order(6, seed))
        return tuple(i for b in loader.batches(epoch) for i in b.index.tolist())

    orders = [order(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9
    assert order(2, 1) == orders[7]


def test_processes_share_shards(shards: tuple[Path, ...]) -> None:
    alone = shard_loader(shards, Order(6)).batches()
    ranks = [shard_loader(shards, Order(6, shard=(r, 2))).batches() for r in range(2)]
    for whole, one, other in zip(alone, *ranks, strict=True):
        assert torch.equal(torch.cat((one.x, other.x)), whole.x)
        assert torch.equal(torch.cat((one.index, other.index)), whole.index)


def test_shards_that_lose_their_last_short_batch(shards: tuple[Path, ...]) -> None:
    loader = shard_loader(shards, Order(6, drop_last=True))
    assert len(loader) == 3
    assert [len(batch.y) for batch in loader.batches()] == [6, 6, 6]


def test_labels_given_win_over_those_in_the_shards(shards: tuple[Path, ...]) -> None:
    ids, labels = shard_samples(shards)
    loader = ShardLoader(shards, ids, labels + 10, SCALING, Order(6), workers=0)
    assert all(bool((b.y == b.index % 4 + 10).all()) for b in loader.batches())


def test_broken_shards_are_refused_in_a_sentence(tmp_path: Path, shards: tuple[Path, ...]) -> None:
    image = encoded(1)
    no_class = write_shard(tmp_path / "a.tar", [("k", {"png": image})])
    odd_class = write_shard(tmp_path / "b.tar", [("k", {"png": image, "cls": b"cat"})])
    twice = write_shard(tmp_path / "c.tar", [("img001", {"png": image, "cls": b"1"})])
    no_image = write_shard(tmp_path / "d.tar", [("k", {"txt": b"hello", "cls": b"1"})])
    (tmp_path / "e.tar").write_bytes(shards[0].read_bytes()[:700])
    (tmp_path / "f.tar").write_bytes(b"\x1f\x8b" + b"0" * 600)
    for name, message in {
        no_class: 'sample "k" of a.tar has no class',
        odd_class: 'sample "k" of b.tar has no class',
        tmp_path / "e.tar": "e.tar cannot be read as a tar shard",
        tmp_path / "f.tar": "not a plain tar file",
        tmp_path / "missing.tar": "cannot be read",
    }.items():
        with pytest.raises(InputError, match=message) as caught:
            shard_samples([name])
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match='more than one sample "img001"'):
        shard_samples([*shards, twice])
    with pytest.raises(InputError, match="no samples"):
        shard_samples([])
    with pytest.raises(InputError, match=r'sample "k" of d\.tar holds no image'):
        list(ShardLoader((no_image,), ("k",), np.array([1]), SCALING, workers=0).batches())


def test_without_the_library_its_extra_is_named(
    shards: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = shard_loader(shards, Order(6))
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(InputError, match=r"proselflc\[stream\]"):
        shard_samples(shards)
    with pytest.raises(InputError, match=r"proselflc\[stream\]"):
        list(loader.batches())


def test_shards_that_changed_since_they_were_listed_are_noticed(shards: tuple[Path, ...]) -> None:
    ids, labels = shard_samples(shards)
    fewer = ShardLoader(shards, ids[:-1], labels[:-1], SCALING, Order(6), workers=0)
    with pytest.raises(InputError, match='"img019" that was not there'):
        list(fewer.batches())
    more = ShardLoader(shards, (*ids, "new"), np.append(labels, 1), SCALING, Order(6), workers=0)
    with pytest.raises(InputError, match="20 samples, but 21"):
        list(more.batches())


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_shards_give_samples_or_a_sentence(
    shards: tuple[Path, ...], tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(shards[0].read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.tar"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    why = "it could be read"
    try:
        ids, labels = shard_samples([path])
        loader = ShardLoader((path,), ids, labels, SCALING, workers=0, on_bad_image="skip")
        served = sum(len(batch.y) for batch in loader.batches())
        assert served + len(loader.skipped) == len(ids)
    except InputError as error:
        why = str(error)
    assert "\n" not in why
