"""Image files: the same batches for any number of workers, bad images, resuming."""

import io
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from proselflc.data import serving
from proselflc.data.batches import Batch, Order, generator_for
from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling, placements, warped
from proselflc.data.inputs import Bytes, ImageFiles, Images
from proselflc.data.serving import FileLoader, RandomCrop
from proselflc.errors import InputError

# Three workers are asked for on purpose, however many cores there are.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SCALING = ImageScaling((0.5, 0.4, 0.3), (0.2, 0.25, 0.3), (12, 10), (16, 18))


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
        drawn = placements(
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

    def counting(source: Path, size: tuple[int, int], **options: Any) -> Bytes:
        opened.append(source)
        return warped(source, size, **options)

    monkeypatch.setattr(serving, "warped", counting)
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


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_processes_together_see_what_one_sees(part: Part, by_position: bool, workers: int) -> None:
    alone = FileLoader(part, SCALING, Order(6), RandomCrop(), workers=0).batches(2)
    orders = [Order(6, shard=(r, 4), by_position=by_position) for r in range(4)]
    ranks = [
        FileLoader(part, SCALING, order, RandomCrop(), workers=workers).batches(2)
        for order in orders
    ]
    for whole, *shares in zip(alone, *ranks, strict=True):
        index = torch.cat([s.index for s in shares])
        assert by_position or torch.equal(index, whole.index)
        assert torch.equal(torch.cat([s.x for s in shares])[index.argsort()], x_in_order(whole))


def x_in_order(batch: Batch) -> torch.Tensor:
    return batch.x[batch.index.argsort()]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_named(part: Part, workers: int) -> None:
    assert isinstance(part.inputs, ImageFiles)
    part.inputs.paths[7].write_bytes(encoded(7)[:47])
    loader = FileLoader(part, SCALING, Order(4), workers=workers)
    with pytest.raises(InputError, match=r'cannot read the image "07\.png": .*truncated') as caught:
        list(loader.batches())
    assert "\n" not in str(caught.value)


def test_the_global_generator_is_left_alone(part: Part) -> None:
    before = torch.random.get_rng_state()
    list(FileLoader(part, SCALING, Order(8), RandomCrop(), workers=1).batches())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_images_in_memory_are_not_for_a_file_loader() -> None:
    images = Part(Images(np.zeros((2, 12, 10, 3), np.uint8)), np.zeros(2, np.int64), ("a", "b"))
    with pytest.raises(InputError, match="in memory"):
        FileLoader(images, SCALING)
