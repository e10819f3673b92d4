"""Every kind of image file becomes upright RGB bytes, or an error that names it."""

import io
import os
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proselflc.data import image
from proselflc.errors import InputError

Pixels = npt.NDArray[np.uint8]
RANDOM = np.random.default_rng(0)
COLOURS: Pixels = RANDOM.integers(0, 256, (3, 5, 3), dtype=np.uint8)
# What the EXIF standard says must be done to the stored rows to see the picture upright.
UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


def read(path: Path) -> Pixels:
    """Return [H, W, 3] the pixels of a file, or raise the error that names it."""
    return np.asarray(decode(path))


def decode(path: Path) -> Image.Image:
    try:
        with image.opened(path) as file:
            return image.rgb(file)
    except Exception as error:
        raise image.unreadable(path, image.reason(error)) from None


def saved(path: Path, picture: Image.Image, **options: Any) -> Path:
    picture.save(path, **options)
    return path


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize(
    ("suffix", "options"),
    [("png", {}), ("tif", {}), ("tif", {"compression": "tiff_lzw"}), ("webp", {"lossless": True})],
)
def test_orientation_is_applied_once(
    tmp_path: Path, suffix: str, options: dict[str, Any], orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / f"a.{suffix}", Image.fromarray(COLOURS), exif=exif, **options)
    np.testing.assert_array_equal(read(path), UPRIGHT[orientation](COLOURS))


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_orientation_of_jpeg(tmp_path: Path, orientation: int) -> None:
    blocks = np.kron(RANDOM.integers(0, 256, (1, 2, 3)), np.ones((16, 16, 1))).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "a.jpg", Image.fromarray(blocks), exif=exif, quality=100, subsampling=0)
    got = read(path).astype(int)
    assert np.abs(got - UPRIGHT[orientation](blocks)).max() <= 4


def test_damaged_exif_leaves_sound_pixels_readable(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "a.png", Image.fromarray(COLOURS), exif=b"Exif\0\0II*\0\xff\xff\xff\x7f"
    )
    np.testing.assert_array_equal(read(path), COLOURS)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "gif", "webp", "jpg"])
def test_grey_becomes_three_equal_channels(tmp_path: Path, suffix: str) -> None:
    grey = np.full((16, 16), 77, np.uint8)
    options = {"lossless": True} if suffix == "webp" else {}
    pixels = read(saved(tmp_path / f"a.{suffix}", Image.fromarray(grey), **options))
    np.testing.assert_array_equal(pixels, np.full((16, 16, 3), 77))


def test_black_and_white(tmp_path: Path) -> None:
    bits = np.array([[True, False], [False, True]])
    pixels = read(saved(tmp_path / "a.png", Image.fromarray(bits)))
    np.testing.assert_array_equal(pixels[:, :, 1], [[255, 0], [0, 255]])


def test_alpha_lies_on_white(tmp_path: Path) -> None:
    rgba = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [0, 0, 0, 51]]], np.uint8)
    pixels = read(saved(tmp_path / "a.png", Image.fromarray(rgba)))
    np.testing.assert_array_equal(pixels, [[[200, 100, 0], [255, 255, 255], [204, 204, 204]]])


def test_grey_alpha_lies_on_white(tmp_path: Path) -> None:
    grey = Image.merge("LA", [Image.new("L", (2, 1), 10), Image.new("L", (2, 1), 0)])
    np.testing.assert_array_equal(read(saved(tmp_path / "a.png", grey)), np.full((1, 2, 3), 255))


@pytest.mark.parametrize("suffix", ["png", "gif"])
@pytest.mark.parametrize("transparent", [True, False])
def test_palette(tmp_path: Path, suffix: str, transparent: bool) -> None:
    picture = Image.new("P", (3, 1))
    picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    picture.putdata([0, 1, 2])
    options = {"transparency": 1} if transparent else {}
    pixels = read(saved(tmp_path / f"a.{suffix}", picture, **options))
    middle = [255, 255, 255] if transparent else [0, 255, 0]
    np.testing.assert_array_equal(pixels, [[[255, 0, 0], middle, [0, 0, 255]]])


def test_palette_with_an_alpha_for_every_colour(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([255, 0, 0, 0, 0, 0])
    picture.putdata([0, 1])
    path = saved(tmp_path / "a.png", picture, transparency=bytes([255, 51]))
    np.testing.assert_array_equal(read(path), [[[255, 0, 0], [204, 204, 204]]])


def test_colour_key_of_rgb(tmp_path: Path) -> None:
    picture = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    path = saved(tmp_path / "a.png", picture, transparency=(1, 2, 3))
    np.testing.assert_array_equal(read(path), [[[255, 255, 255], [4, 5, 6]]])


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_cmyk(tmp_path: Path, suffix: str) -> None:
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    pixels = read(saved(tmp_path / f"a.{suffix}", cyan)).astype(int)
    assert np.abs(pixels - [0, 255, 255]).max() <= 3


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_keep_their_upper_eight(tmp_path: Path, suffix: str) -> None:
    deep = np.array([[0, 255, 256, 0x7FFF, 0xFFFF]], np.uint16)
    pixels = read(saved(tmp_path / f"a.{suffix}", Image.fromarray(deep)))
    np.testing.assert_array_equal(pixels[0, :, 2], [0, 0, 1, 127, 255])


def png(chunks: list[tuple[bytes, bytes]]) -> bytes:
    out = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks:
        out += struct.pack(">I", len(data)) + kind + data
        out += struct.pack(">I", zlib.crc32(kind + data))
    return out


def test_sixteen_bit_colour_and_colour_key(tmp_path: Path) -> None:
    size = struct.pack(">II", 2, 1)
    colour = png(
        [
            (b"IHDR", size + bytes([16, 2, 0, 0, 0])),
            (b"IDAT", zlib.compress(b"\0" + struct.pack(">6H", 0x1234, 0, 0xFFFF, 7, 0x0100, 9))),
            (b"IEND", b""),
        ]
    )
    (tmp_path / "a.png").write_bytes(colour)
    np.testing.assert_array_equal(read(tmp_path / "a.png"), [[[0x12, 0, 255], [0, 1, 0]]])
    grey = png(
        [
            (b"IHDR", size + bytes([16, 0, 0, 0, 0])),
            (b"tRNS", struct.pack(">H", 0x1234)),
            (b"IDAT", zlib.compress(b"\0" + struct.pack(">2H", 0x1234, 0x5678))),
            (b"IEND", b""),
        ]
    )
    (tmp_path / "b.png").write_bytes(grey)
    np.testing.assert_array_equal(read(tmp_path / "b.png")[0, :, 0], [255, 0x56])


def test_thirty_two_bits_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.tif", Image.fromarray(np.ones((2, 2), np.float32)))
    with pytest.raises(InputError, match=r"a\.tif: its pixels have 32 bits"):
        read(path)


def test_first_frame_of_several(tmp_path: Path) -> None:
    red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
    for suffix in ("gif", "tif", "webp"):
        path = saved(tmp_path / f"a.{suffix}", red, save_all=True, append_images=[blue])
        assert np.abs(read(path).astype(int) - [255, 0, 0]).max() <= 4, suffix


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif"])
def test_truncated_image_is_named(tmp_path: Path, suffix: str) -> None:
    noise = Image.fromarray(RANDOM.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    path = saved(tmp_path / f"cut.{suffix}", noise)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=rf"cannot read the image .*cut\.{suffix}: .+: replace"):
        read(path)


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    for name, why in {
        "empty.png": "it is empty",
        "text.png": "it is not a JPEG",
        "folder.png": "not a regular file",
        "pipe.png": "not a regular file",
        "none.png": "there is no such file",
        "nul\0.png": "null",
    }.items():
        with pytest.raises(InputError, match=why):
            read(tmp_path / name)
        assert why in (image.probe(tmp_path / name) or ""), name


def test_other_formats_of_pillow_are_not_opened(tmp_path: Path) -> None:
    # Some of them start other programs; none has an ending that is read here.
    path = tmp_path / "a.png"
    Image.new("RGB", (2, 2)).save(path, format="PPM")
    with pytest.raises(InputError, match="it is not a JPEG"):
        read(path)


@pytest.mark.parametrize("width", [1_000, 20_000, 2**31 - 1])
def test_bomb_is_refused_by_its_header(tmp_path: Path, width: int) -> None:
    path = tmp_path / "bomb.png"
    header = struct.pack(">II", width, 20_000) + bytes([8, 2, 0, 0, 0])
    path.write_bytes(png([(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]))
    with pytest.raises(InputError, match=r"bomb.png: its header claims"):
        read(path)
    assert "its header claims" in (image.probe(path) or "")


def test_large_plain_image_is_no_bomb(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.new("1", (5000, 5000)))  # as small as PNG can be
    assert path.stat().st_size < 5000
    assert image.probe(path) is None


def test_damage_that_pillow_logs_stays_off_stderr(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.tif", Image.fromarray(COLOURS))
    content = path.read_bytes()
    samples = struct.pack("<HHIH", 277, 3, 1, 3)  # the tag SamplesPerPixel
    assert content.count(samples) == 1
    path.write_bytes(content.replace(samples, samples[:-2] + struct.pack("<H", 999)))
    # In a process of its own: pytest has log handlers, which keep Pillow quiet anyway.
    code = f"from proselflc.data import image; print(image.probe(image.Path({str(path)!r})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "not a JPEG" in run.stdout
    assert run.stderr == ""


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(COLOURS))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may read everything, so chmod is no test
    with pytest.raises(InputError, match=r"a.png: there is no permission to read it"):
        read(path)


def test_probe_decodes_no_pixels(tmp_path: Path) -> None:
    noise = Image.fromarray(RANDOM.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    path = saved(tmp_path / "cut.jpg", noise)
    assert image.probe(path) is None
    path.write_bytes(path.read_bytes()[:-500])
    assert image.probe(path) is None
    with pytest.raises(InputError, match="truncated"):
        read(path)


def test_sift(tmp_path: Path) -> None:
    good = [saved(tmp_path / f"{i}.png", Image.fromarray(COLOURS)) for i in range(3)]
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no")
    paths, ids, classes = (
        [good[0], bad, good[1], good[2]],
        ["0", "b", "1", "2"],
        ["x", "x", "x", "y"],
    )
    keep, skipped = image.sift(paths, ids, classes, on_bad_image="skip")
    assert keep.tolist() == [0, 2, 3]
    assert [s.id for s in skipped] == ["b"]
    assert "not a JPEG" in skipped[0].reason
    with pytest.raises(InputError, match=r"cannot read the image .*bad\.png: it is not a JPEG"):
        image.sift(paths, ids, classes, on_bad_image="error")
    with pytest.raises(InputError, match=r'no image of class "z" can be read, .*bad\.png'):
        image.sift(paths, ids, ["x", "z", "x", "y"], on_bad_image="skip")
    with pytest.raises(InputError, match=r"bad\.png \(and 1 more\)"):
        image.sift([bad, bad, good[0]], ["a", "b", "c"], ["x"] * 3, on_bad_image="error")
    # Without classes only nothing at all is too little.
    keep, skipped = image.sift(paths, ids, None, on_bad_image="skip")
    assert (keep.tolist(), [s.id for s in skipped]) == ([0, 2, 3], ["b"])
    with pytest.raises(InputError, match=r"^no image can be read, for example .*; replace the fil"):
        image.sift([bad], ["b"], None, on_bad_image="skip")
    keep, skipped = image.sift([], [], [], on_bad_image="error")
    assert (keep.tolist(), skipped) == ([], ())


def test_warning_filters_survive_threads(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(COLOURS))
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        assert all(p.shape == (3, 5, 3) for p in pool.map(read, [path] * 200))
    assert list(warnings.filters) == before


def valid_files() -> list[bytes]:
    picture = Image.fromarray(RANDOM.integers(0, 256, (9, 7, 3), dtype=np.uint8))
    files = []
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"):
        stream = io.BytesIO()
        exif = Image.Exif()
        exif[0x0112] = 6
        picture.save(stream, format=kind, exif=exif)
        files.append(stream.getvalue())
    return files


VALID = valid_files()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data) - 1)) :]
    return bytes(data)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.binary(max_size=300), mutated()))
def test_fuzzed_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.png"
    path.write_bytes(data)
    why = image.probe(path)
    refused = ""
    try:
        pixels = read(path)
    except InputError as error:
        refused = str(error)
    if refused:
        assert "fuzz.png" in refused
        assert "\n" not in refused
        return
    assert why is None
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert 0 < pixels.size <= 3 * image.MAX_PIXELS
