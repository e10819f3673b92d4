"""Small pictures: true to the pixel where that fits, never more than 4 kB, never a traceback."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from proselflc.data.inputs import Bytes, ImageFiles, Images
from proselflc.pages.thumbnails import LARGEST, SIDE, SMALL, Thumbnail, of_picture


def of_pixels(pixels: Bytes) -> Thumbnail:
    picture = Images(pixels[None]).preview(0, SIDE).picture
    assert picture is not None
    return of_picture(picture)


def of_file(path: Path) -> Thumbnail | None:
    picture = ImageFiles((path,)).preview(0, SIDE).picture
    return None if picture is None else of_picture(picture)


def decoded(address: str) -> Image.Image:
    head, _, body = address.partition(";base64,")
    assert head in ("data:image/png", "data:image/jpeg")
    return Image.open(io.BytesIO(base64.b64decode(body)))


def test_digits_are_kept_to_the_pixel_and_enlarged() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8, 1) * 4
    found = of_pixels(pixels)
    np.testing.assert_array_equal(np.asarray(decoded(found.address)), pixels[:, :, 0])
    assert (found.width, found.height, found.is_enlarged) == (SIDE, SIDE, True)


@pytest.mark.parametrize(
    "shape", [(32, 32, 3), (28, 28, 1), (64, 64, 3), (480, 640, 3), (3, 4000, 3), (1, 1, 1)]
)
def test_noise_of_any_size_fits(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    found = of_pixels(pixels)
    assert len(found.address) <= LARGEST
    assert max(found.width, found.height) == SIDE
    assert max(decoded(found.address).size) <= SIDE
    assert found.is_enlarged == (max(shape[:2]) <= SMALL)


def test_a_photo_keeps_its_proportions_and_colours(tmp_path: Path) -> None:
    Image.new("RGB", (400, 200), (200, 30, 30)).save(tmp_path / "a.jpg")
    found = of_file(tmp_path / "a.jpg")
    assert found is not None
    assert (found.width, found.height) == (96, 48)
    colour = np.asarray(decoded(found.address)).reshape(-1, 3).mean(0)
    np.testing.assert_allclose(colour, (200, 30, 30), atol=4)


@pytest.mark.parametrize("side", [40, 400], ids=["kept", "made smaller"])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_nothing_but_pixels_comes_out_of_a_file(tmp_path: Path, form: str, side: int) -> None:
    path = tmp_path / "photo"
    exif = Image.Exif()
    exif[0x010E] = "where somebody lives"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 12.0, 0.0), 29: "somebody"})  # GPS
    words = PngInfo()
    words.add_text("Comment", "<script>somebody</script>")
    own = {"pnginfo": words} if form == "PNG" else {"comment": b"<script>somebody</script>"}
    hidden = {"exif": exif, "icc_profile": b"somebody" * 40, "xmp": b"<x>somebody</x>", **own}
    Image.new("RGB", (side, side), "blue").save(path, form, **hidden)
    assert b"somebody" in path.read_bytes()
    found = of_file(path)
    assert found is not None
    content = base64.b64decode(found.address.partition(";base64,")[2])
    for word in (b"script", b"somebody", b"Exif", b"eXIf", b"ICC", b"iCCP", b"tEXt"):
        assert word not in content
    assert not decoded(found.address).getexif()


def test_what_is_no_picture_has_none(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("<script>")
    (tmp_path / "empty.png").touch()
    whole = io.BytesIO()
    Image.effect_noise((300, 300), 50).save(whole, "PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:500])
    header = (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x01\x00\x00\x00\x01\x00\x00\x08\x02\x00\x00\x00"
    )
    (tmp_path / "bomb.png").write_bytes(header + b"\0" * 40)
    for name in ("text.png", "empty.png", "cut.png", "bomb.png", "gone.png", "."):
        assert of_file(tmp_path / name) is None
