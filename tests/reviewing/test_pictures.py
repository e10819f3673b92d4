"""Pictures are made anew: whatever a file holds, an image comes out, or nothing."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proselflc.data.dataset import Features, ImageFiles, Images, Texts
from proselflc.reviewing.pictures import picture


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_are_kept_pixel_by_pixel(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 6, channels), np.uint8)
    found = picture(Images(pixels), 1, 900)
    assert found is not None
    assert found.kind == "image/png"
    back = np.asarray(opened(found.content)).reshape(8, 6, channels)
    np.testing.assert_array_equal(back, pixels[1])


def test_large_images_are_made_smaller(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (2000, 1000), "red").save(path)
    found = picture(ImageFiles((path,)), 0, 900)
    assert found is not None
    assert (found.kind, opened(found.content).format) == ("image/jpeg", "JPEG")
    assert opened(found.content).size == (900, 450)


def test_what_is_hidden_in_a_file_does_not_come_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    exif = Image.Exif()
    exif[0x010E] = "where somebody lives"
    Image.new("RGB", (100, 60), "blue").save(path, exif=exif, comment=b"<script>")
    path.write_bytes(path.read_bytes() + b"<script>alert(1)</script>")
    found = picture(ImageFiles((path,)), 0, 900)
    assert found is not None
    assert b"script" not in found.content
    assert b"somebody" not in found.content


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", b"<svg xmlns='x' onload='alert(1)'/>", b"\xff" * 99]
)
def test_what_is_no_image_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    assert picture(ImageFiles((path,)), 0, 900) is None
    assert picture(ImageFiles((tmp_path / "gone.png",)), 0, 900) is None


def test_texts_and_numbers_have_none() -> None:
    assert picture(Texts(("a",)), 0, 900) is None
    assert picture(Features(np.zeros((1, 2), np.float32)), 0, 900) is None
