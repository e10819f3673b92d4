"""Images: fitted values, the warp against Pillow's own, damaged files."""

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from proselflc.data import image_scaling
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Bytes, ImageFiles, Images
from proselflc.errors import InputError
from proselflc.wording import on_command_line


def warped(source: Path | bytes, size: tuple[int, int], **options: Any) -> Bytes:
    """Return the image of a file, or of the content of one, as `image_scaling.warped` does."""
    if isinstance(source, Path):
        return image_scaling.warped(source, size, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image"
        path.write_bytes(source)
        return image_scaling.warped(path, size, **options)


def noise_images(n: int = 6, channels: int = 3) -> Images:
    rng = np.random.default_rng(channels)
    return Images(rng.integers(0, 256, (n, 5, 4, channels), dtype=np.uint8))


@pytest.mark.parametrize("channels", [1, 3])
def test_training_images_come_out_with_mean_0_and_deviation_1(channels: int) -> None:
    images = noise_images(channels=channels)
    x = ImageScaling.fit(images)(images).double()
    assert x.shape == (6, channels, 5, 4)
    assert float(x.mean((0, 2, 3)).abs().max()) < 1e-6
    assert float((x.std((0, 2, 3), correction=0) - 1).abs().max()) < 1e-6


def test_a_constant_channel_becomes_zero_not_nan() -> None:
    images = Images(np.full((3, 2, 2, 1), 77, np.uint8))
    assert ImageScaling.fit(images).std == (1.0,)
    assert float(ImageScaling.fit(images)(images).abs().max()) < 1e-6


def test_files_are_measured_as_they_are_warped(tmp_path: Path) -> None:
    paths = []
    for i in range(5):
        array = np.random.default_rng(i).integers(0, 256, (9 + i, 7, 3), dtype=np.uint8)
        Image.fromarray(array).save(tmp_path / f"{i}.png")
        paths.append(tmp_path / f"{i}.png")
    files = ImageFiles(tuple(paths))
    scaling = ImageScaling.fit(files, size=(4, 4), warp=(6, 8))
    pixels = np.stack([warped(path, (6, 8)) for path in paths]) / 255
    np.testing.assert_allclose(scaling.mean, pixels.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(scaling.std, pixels.std((0, 2, 3)), rtol=1e-12)
    assert scaling(files).shape == (5, 3, 4, 4)
    few = ImageScaling.fit(files, size=(4, 4), warp=(6, 8), sample=2)
    ends = pixels[[0, 4]]
    np.testing.assert_allclose(few.mean, ends.mean((0, 2, 3)), rtol=1e-12)


@pytest.fixture(params=["torch", "pillow"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to resize, whatever this machine would choose."""
    monkeypatch.setattr(image_scaling, "_has_vectors", lambda: request.param == "torch")


@pytest.mark.usefixtures("either")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    channels=st.sampled_from([1, 3]),
)
def test_warp_ignores_the_aspect_and_is_pillows_bilinear_up_to_rounding(
    shape: tuple[int, int], size: tuple[int, int], channels: int
) -> None:
    array = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    pillow = Image.fromarray(array).convert("RGB" if channels == 3 else "L")
    expected = np.asarray(pillow.resize(size[::-1], Image.Resampling.BILINEAR))
    whole = warped(encode(array), size, channels=channels)
    assert whole.shape == (channels, *size)
    difference = whole.astype(int) - expected.reshape(*size, channels).transpose(2, 0, 1)
    assert np.abs(difference).max() <= 1


@pytest.mark.usefixtures("either")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    height=st.integers(5, 60),
    width=st.integers(5, 60),
    size=st.tuples(st.integers(4, 30), st.integers(4, 30)),
    channels=st.sampled_from([1, 3]),
    flip=st.booleans(),
    data=st.data(),
)
def test_a_window_is_cut_out_of_the_warped_image(
    height: int, width: int, size: tuple[int, int], channels: int, flip: bool, data: st.DataObject
) -> None:
    array = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    h, w = data.draw(st.integers(1, size[0])), data.draw(st.integers(1, size[1]))
    top, left = data.draw(st.integers(0, size[0] - h)), data.draw(st.integers(0, size[1] - w))
    whole = warped(encode(array, "BMP"), size, channels=channels)
    expected = whole[:, top : top + h, left : left + w]
    out = np.full((channels, h, w), 77, np.uint8)
    window = (top, left, h, w)
    got = warped(encode(array, "BMP"), size, channels=channels, window=window, flip=flip, out=out)
    assert got is out
    difference = out.astype(int) - (np.flip(expected, 2) if flip else expected)
    assert np.abs(difference).max() <= 1  # Pillow computes the window alone


def test_a_thread_of_pixels_is_warped_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch works by width first, and would make eight million rows of 256 pixels of it."""
    content = encode(np.full((2**23, 1, 3), 77, np.uint8))
    assert len(content) < 100_000
    monkeypatch.setattr("torch.nn.functional.interpolate", pytest.fail)
    assert (warped(content, (256, 256)) == 77).all()


def test_what_goes_wrong_while_resizing_is_the_images_fault_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> Bytes:
        raise RuntimeError("cannot allocate memory")

    monkeypatch.setattr(image_scaling, "_part", fails)
    with pytest.raises(ValueError, match="cannot allocate memory"):
        warped(encode(np.zeros((9, 9, 3), np.uint8)), (4, 4))


def encode(array: Bytes, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind, **options)
    return buffer.getvalue()


def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same() -> None:
    rows, columns = np.mgrid[0:800, 0:1200]
    array = np.stack([rows / 4, columns / 5, (rows + columns) / 8], -1).astype(np.uint8)
    content = encode(array, "JPEG", quality=95)
    whole = Image.open(io.BytesIO(content)).resize((64, 64), Image.Resampling.BILINEAR)
    difference = np.abs(
        warped(content, (64, 64)).transpose(1, 2, 0).astype(int) - np.asarray(whole)
    )
    assert difference.max() <= 4
    assert difference.mean() < 1


def test_a_photo_on_its_side_is_turned_before_it_is_warped() -> None:
    array = np.zeros((40, 80, 3), np.uint8)
    array[:, :40] = 200  # left half bright
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: left goes up
    content = encode(array, "JPEG", quality=95, exif=exif)
    upright = warped(content, (20, 10))
    assert upright.shape == (3, 20, 10)
    assert upright[:, :8].mean() > 190
    assert upright[:, -8:].mean() < 10


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_images_are_read_or_refused_with_a_reason(data: st.DataObject) -> None:
    array = np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    content = bytearray(encode(array, data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP"]))))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    source = bytes(content[: data.draw(st.integers(0, len(content)))])
    why = "it could be read"
    try:
        assert warped(source, (5, 7)).shape == (3, 5, 7)
    except ValueError as error:
        why = str(error)
    assert why
    assert "\n" not in why


def test_what_cannot_be_an_image_is_refused(tmp_path: Path) -> None:
    header = b"BM" + (2**31 - 1).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    header += (40).to_bytes(4, "little") + (60_000).to_bytes(4, "little") * 2
    header += (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24)
    with pytest.raises(ValueError, match="pixels"):
        warped(header, (8, 8))
    with pytest.raises(ValueError, match="it is not a JPEG"):
        warped(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", (8, 8))
    with pytest.raises(ValueError, match="not a regular file"):
        warped(tmp_path, (8, 8))
    missing = ImageFiles((tmp_path / "missing.png",))
    with pytest.raises(InputError, match=r"cannot read the image .*missing\.png: there is no such"):
        ImageScaling.fit(missing)
    with on_command_line(), pytest.raises(InputError, match="--on-bad-image skip"):
        ImageScaling.fit(missing)


def test_a_warp_smaller_than_the_crop_is_refused() -> None:
    with pytest.raises(InputError, match="warp to at least the size of the crop"):
        ImageScaling.fit(ImageFiles((Path("a.png"),)), size=(10, 10), warp=(12, 9))
