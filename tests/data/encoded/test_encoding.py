"""Images and texts become features once, whatever they come from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from proselflc.data import serving
from proselflc.data.batches import Order
from proselflc.data.dataset import Part
from proselflc.data.encoded import encoding
from proselflc.data.encoded.encoding import Encoding
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.encoded.preprocessing import PretrainedFeatures
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.errors import InputError
from proselflc.pretrained import catalogue
from proselflc.pretrained.encoder import Encoder
from proselflc.wording import on_command_line

SIDE = 8


class Counting:
    """An encoder that counts what it encodes: means of colours, or lengths of texts."""

    def __init__(self) -> None:
        self.count = 0

    def images(self, pixels: Tensor) -> Tensor:
        assert pixels.dtype == torch.uint8
        assert pixels.shape[1:] == (3, SIDE, SIDE)
        self.count += len(pixels)
        return pixels.float().mean((2, 3)) + 1

    def texts(self, texts: Any) -> Tensor:
        self.count += len(texts)
        return torch.tensor([[len(one), one.count("a"), 1.0] for one in texts])


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    found = Counting()
    encoders = {
        "colours": Encoder("colours", "image", 3, "c1", found.images),
        "lengths": Encoder("lengths", "text", 3, "l1", found.texts),
        "nothing": Encoder("nothing", "text", 3, "n1", lambda texts: torch.full((2, 3), np.nan)),
    }
    monkeypatch.setattr(catalogue, "encoder", encoders.__getitem__)
    return found


def photos(folder: Path, count: int = 5) -> ImageFiles:
    paths = []
    for k in range(count):
        paths.append(folder / f"{k}.png")
        Image.new("RGB", (20, 30 + k), (40 * k, 9, 200 - 40 * k)).save(paths[-1])
    return ImageFiles(tuple(paths))


def test_files_and_arrays_of_the_same_images_have_the_same_features(
    tmp_path: Path, counting: Counting
) -> None:
    files = photos(tmp_path)
    pixels = np.stack([np.asarray(Image.open(p).resize((20, 30))) for p in files.paths])
    of_files = Encoding("colours", SIDE)(files, cache=tmp_path / "a")
    of_arrays = Encoding("colours", SIDE)(Images(pixels), cache=tmp_path / "b")
    np.testing.assert_allclose(of_files.values, of_arrays.values, atol=1e-3)
    expected = np.array([[40 * k + 1, 10, 201 - 40 * k] for k in range(5)], np.float64)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(of_files.values, expected, atol=1e-3)


def test_what_was_computed_is_not_computed_again(tmp_path: Path, counting: Counting) -> None:
    files, how = photos(tmp_path), Encoding("colours", SIDE)
    first = how(files, cache=tmp_path / "cache")
    assert counting.count == 5
    moved = tmp_path / "moved.png"
    files.paths[2].rename(moved)
    Image.new("RGB", (9, 9), "white").save(files.paths[2])
    paths = ImageFiles((*files.paths, moved, files.paths[0]))
    again = how(paths, cache=tmp_path / "cache")
    assert counting.count == 6  # the new one alone
    np.testing.assert_array_equal(
        again.values[[0, 1, 5, 3, 4, 6]], first.values[[0, 1, 2, 3, 4, 0]]
    )
    assert how(again, cache=tmp_path / "none") is again


def test_features_of_other_weights_are_not_taken_from_the_cache(
    tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, cache = photos(tmp_path), tmp_path / "cache"
    Encoding("colours", SIDE)(files, cache=cache)
    other = Encoder("colours", "image", 3, "c2", lambda pixels: 1 + counting.images(pixels))
    monkeypatch.setattr(catalogue, "encoder", {"colours": other}.__getitem__)
    fresh = Encoding("colours", SIDE)(files, cache=tmp_path / "empty")
    again = Encoding("colours", SIDE)(files, cache=cache)
    assert counting.count == 15
    np.testing.assert_array_equal(again.values, fresh.values)


def test_an_interrupted_encoding_keeps_what_it_has_computed(
    tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_CHUNK", 2)
    files = photos(tmp_path, 7)

    def stop(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Encoding("colours", SIDE)(files, cache=tmp_path / "cache", progress=stop)
    before = counting.count
    assert before == 4
    Encoding("colours", SIDE)(files, cache=tmp_path / "cache")
    assert counting.count == 7


def test_several_models_stand_side_by_side(tmp_path: Path, counting: Counting) -> None:
    texts = Texts(("banana", "", "a cat"))
    seen: list[tuple[int, int]] = []
    found = Encoding("lengths+lengths")(
        texts, cache=tmp_path, progress=lambda done, total: seen.append((done, total))
    )
    assert found.values.shape == (3, 6)
    np.testing.assert_array_equal(found.values[:, :3], found.values[:, 3:])
    assert seen[-1] == (6, 6)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path, counting: Counting) -> None:
    files = photos(tmp_path)
    files.paths[3].write_bytes(b"no image")
    with pytest.raises(InputError, match=r"3\.png"):
        Encoding("colours", SIDE)(files, cache=tmp_path)
    with on_command_line(), pytest.raises(InputError, match="--on-bad-image skip"):
        Encoding("colours", SIDE)(files, cache=tmp_path)


def test_odd_images_are_encoded(tmp_path: Path, counting: Counting) -> None:
    """Of several frames the first counts, of 16 bits the upper eight, and any shape is warped."""
    grey = Image.new("L", (30, 20), 120)
    deep = Image.fromarray(np.full((20, 30), 120 << 8, np.uint16))
    grey.save(tmp_path / "plain.png")
    grey.save(tmp_path / "animated.gif", save_all=True, append_images=[Image.new("L", (30, 20))])
    deep.save(tmp_path / "16-bit.png")
    grey.convert("CMYK").save(tmp_path / "cmyk.tif")
    grey.convert("RGBA").save(tmp_path / "transparent.webp", lossless=True)
    grey.resize((1, 1)).save(tmp_path / "dot.png")
    grey.resize((4000, 2)).save(tmp_path / "line.png")
    files = ImageFiles((tmp_path / "plain.png", *sorted(tmp_path.glob("*.*"))))
    values = Encoding("colours", SIDE)(files, cache=tmp_path / "cache").values
    np.testing.assert_allclose(values, np.tile(values[:1], (len(files), 1)), atol=2e-3)


def test_a_model_for_another_kind_is_refused(tmp_path: Path, counting: Counting) -> None:
    with pytest.raises(InputError, match="colours is for images, but these are texts"):
        Encoding("colours")(Texts(("a",)), cache=tmp_path)
    with pytest.raises(InputError, match="infinite"):
        Encoding("nothing")(Texts(("a", "b")), cache=tmp_path)


def test_encoded_inputs_show_themselves_as_before(tmp_path: Path, counting: Counting) -> None:
    files = photos(tmp_path)
    found = Encoding("colours", SIDE)(files, cache=tmp_path)
    assert (found.kind, found.medium, found.in_memory) == ("image files", "image", True)
    assert found.preview(1, 20).picture is not None
    assert found.strings == files.strings
    both = found.take(np.array([4, 0])).concat([found.take(np.array([2]))])
    assert isinstance(both.raw, ImageFiles)
    assert both.raw.paths == tuple(files.paths[k] for k in (4, 0, 2))
    np.testing.assert_array_equal(both.values, found.values[[4, 0, 2]])


def test_the_preprocessing_standardises_and_is_saved(tmp_path: Path, counting: Counting) -> None:
    files = photos(tmp_path)
    found = Encoding("colours", SIDE)(files, cache=tmp_path)
    fitted = serving.fit(found)
    assert isinstance(fitted, PretrainedFeatures)
    x = fitted(found)
    torch.testing.assert_close(x.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    read = serving.from_json({**fitted.to_json()})
    assert read == fitted
    part = Part(files, np.zeros(5, np.int64), tuple("abcde"))  # raw, as in a prediction
    (batch,) = serving.loader(part, read, Order(8, shuffle=False)).batches()
    torch.testing.assert_close(batch.x, x)
    with pytest.raises(InputError, match="made for images, got features"):
        read.check(Features(np.zeros((1, 3), np.float32)))


def test_weights_other_than_those_of_the_run_are_refused(
    tmp_path: Path, counting: Counting
) -> None:
    files = photos(tmp_path)
    fitted = serving.fit(Encoding("colours", SIDE)(files, cache=tmp_path))
    other = serving.from_json({**fitted.to_json(), "digest": "c2"})
    with pytest.raises(InputError, match="not those that the run was trained with"):
        other(files)


def test_features_are_in_the_order_of_the_inputs(tmp_path: Path, counting: Counting) -> None:
    texts = Texts(tuple("a" * k for k in (5, 1, 9, 0, 3, 9)))
    found = Encoding("lengths")(texts, cache=tmp_path)
    assert isinstance(found, Encoded)
    lengths = found.values[:, 0] / found.values[:, 2]
    np.testing.assert_allclose(lengths, [5, 1, 9, 0, 3, 9], rtol=2e-2)


def test_a_run_cannot_name_code() -> None:
    with pytest.raises(InputError, match="not a pretrained model that a run can name"):
        Encoding("colours+os.path:join")


def test_a_run_with_another_number_of_features_is_refused(
    tmp_path: Path, counting: Counting
) -> None:
    files = photos(tmp_path)
    fitted = serving.fit(Encoding("colours", SIDE)(files, cache=tmp_path))
    for count in (1, 5):
        numbers = {"mean": [0.0] * count, "std": [1.0] * count}
        other = serving.from_json({**fitted.to_json(), **numbers})
        with pytest.raises(InputError, match=f"has 3 features, and it holds {count}"):
            other(files)
    with pytest.raises(InputError, match="side"):
        serving.from_json({**fitted.to_json(), "side": 16384})


def test_a_file_that_changes_meanwhile_is_not_kept(tmp_path: Path, counting: Counting) -> None:
    files, how = photos(tmp_path), Encoding("colours", SIDE)
    keys = encoding._Contents.keys

    def then_changed(self: Any) -> list[bytes]:
        found = keys(self)
        Image.new("RGB", (20, 30), (250, 0, 0)).save(files.paths[1])
        return found

    before = files.paths[1].read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding._Contents, "keys", then_changed)
        how(files, cache=tmp_path / "cache")
    files.paths[1].write_bytes(before)
    counting.count = 0
    found = how(files, cache=tmp_path / "cache")
    assert counting.count == 1
    fresh = how(files, cache=tmp_path / "other")
    np.testing.assert_array_equal(found.values, fresh.values)
