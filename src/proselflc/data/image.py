"""Image files, decoded safely: whatever is inside, the result is RGB bytes or a plain error."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

import numpy as np

from proselflc.data.dataset import Skipped
from proselflc.data.inputs import Ints
from proselflc.errors import InputError
from proselflc.files.regular import NotRegularError, open_regular
from proselflc.wording import is_command_line, option

if TYPE_CHECKING:
    from PIL import Image

OnBadImage: TypeAlias = Literal["error", "skip"]

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
MAX_PIXELS = 2**27  # photographs of 108 million pixels pass
MAX_BYTES = 2**30  # some decoders read the whole file at once

# Most pixels per byte of a large image: PNG, at its best, packs 8,256 into one.
_LARGE = 2**24
_PIXELS_PER_BYTE = 10_000
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")


# Pillow logs some damage; without a handler that would go to stderr beside our own sentence.
logging.getLogger("PIL").addHandler(logging.NullHandler())


def unreadable(image: object, why: str | None) -> InputError:
    """Return the error for an image that cannot be read."""
    fix = "replace or remove it"
    if is_command_line():  # arrays and lists given in Python have no such option
        fix = f"{fix}, or leave unreadable images out with {option('on_bad_image', 'skip')}"
    return InputError(f"cannot read the image {image}: {why}", field="on_bad_image", fix=fix)


def rgb(image: Image.Image) -> Image.Image:
    """Return any Pillow image as RGB of 8 bits: turned upright, transparency over white.

    Of several frames the first counts. Colour profiles are not applied. Of 16 bits the upper eight
    are kept, as Pillow does for colour. Pixels of 32 bits have no agreed range and are refused with
    a ValueError.
    """
    from PIL import Image

    image.load()  # first: it turns a TIFF upright by itself, and may find more metadata
    turn = _turn(image)
    if turn is not None:
        image = image.transpose(turn)
    if image.mode.startswith("I;16"):
        values = np.asarray(image)
        grey = (values >> 8).astype(np.uint8)
        if isinstance(clear := image.info.get("transparency"), int):
            grey[values == clear] = 255
        return Image.fromarray(grey).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits, where 8 or 16 were expected")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        return Image.alpha_composite(white, colours).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open an image file: its header is read and checked, no pixels are decoded.

    `reason` describes whatever is raised here or while its pixels are decoded.
    """
    from PIL import Image

    with QUIET, _stream(path) as file, Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(
                f"its header claims {width} × {height} pixels, more than {MAX_PIXELS:,}"
            )
        if width * height > _LARGE:  # only then: seeking throws away what was read ahead
            here = file.tell()
            size = file.seek(0, io.SEEK_END)
            file.seek(here)
            if width * height > _PIXELS_PER_BYTE * size:
                raise ValueError(
                    f"its header claims {width} × {height} pixels, more than its {size:,} bytes "
                    "can hold"
                )
        yield image


def reason(error: Exception) -> str:
    """Return what is wrong with an image, for a sentence that has named it."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, PermissionError):
        return "there is no permission to read it"
    if isinstance(error, UnidentifiedImageError):
        return "it is not a JPEG, PNG, WebP, BMP, GIF or TIFF image, or its header is damaged"
    if isinstance(error, Image.DecompressionBombError):
        return f"its header claims more than {MAX_PIXELS:,} pixels"
    words = " ".join(str(error).split())[:200]
    return words or f"it is damaged ({type(error).__name__})"


def probe(path: Path, *, whole: bool = False) -> str | None:
    """Return why the file cannot be read, or None if it looks sound.

    It is judged by its header alone, so that a file truncated behind that passes; or, if `whole`,
    by reading it.
    """
    try:
        with opened(path) as image:
            if whole:
                image.draft("RGB", (1, 1))  # a JPEG is read to its end, but not worked out in full
                rgb(image)
            return None
    except Exception as error:
        return reason(error)


def usual_length(paths: Sequence[Path], sample: int = 25) -> int:
    """Return the median longer side of some images in pixels, by their headers; at least 1."""
    lengths = [1]
    for i in np.unique(np.linspace(0, len(paths) - 1, min(sample, len(paths))).astype(np.int64)):
        with contextlib.suppress(Exception), opened(paths[i]) as image:  # it is named elsewhere
            lengths.append(max(image.size))
    return int(np.median(lengths[1:] or lengths))


def sift(
    paths: Sequence[Path],
    ids: Sequence[str],
    classes: Sequence[str] | None,
    *,
    on_bad_image: OnBadImage,
) -> tuple[Ints, tuple[Skipped, ...]]:
    """Return the positions of the n images that can be read, and those left out.

    Headers suffice to name a bad image at once, since any other fails by name when a batch reads
    it. To leave bad ones out, each is read once, so that rows and labels stay aligned later. A
    class none of whose images can be read is refused.
    """
    from PIL import Image

    Image.init()  # loads the decoders, which threads should not do at once
    pieces = [paths[start : start + 512] for start in range(0, len(paths), 512)]

    def judged(piece: Sequence[Path]) -> list[str | None]:
        with QUIET:
            return [probe(path, whole=on_bad_image == "skip") for path in piece]

    with ThreadPoolExecutor(2) as pool:  # one may wait for the disk; more would fight for Python
        reasons = [found for piece in pool.map(judged, pieces) for found in piece]
    bad = [i for i, found in enumerate(reasons) if found is not None]
    if bad and on_bad_image == "error":
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise unreadable(f"{paths[bad[0]]}{more}", reasons[bad[0]])
    keep = np.array([i for i, found in enumerate(reasons) if found is None], dtype=np.int64)
    groups = ["" for _ in paths] if classes is None else classes
    lost = {groups[i] for i in bad} - {groups[i] for i in keep}
    if lost:
        first = next(i for i in bad if groups[i] in lost)
        of_what = "" if classes is None else f' of class "{classes[first]}"'
        advice = "replace the files" + ("" if classes is None else " or remove the class")
        raise InputError(
            f"no image{of_what} can be read, for example {paths[first]}: {reasons[first]}; {advice}"
        )
    return keep, tuple(Skipped(ids[i], reasons[i] or "") for i in bad)


class _Quiet:
    """Silences warnings while any thread is inside. To be inside once for many images is quicker.

    Pillow warns about metadata that does not matter here. `catch_warnings` alone would leave the
    filters in disorder when threads enter and leave it in turns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._caught.__exit__(None, None, None)


QUIET = _Quiet()


@contextmanager
def _stream(path: Path) -> Iterator[BinaryIO]:
    try:
        file = open_regular(path)
    except NotRegularError as error:
        raise ValueError(f"it is {error.kind}, not a regular file") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise ValueError("it is empty")
        if size > MAX_BYTES:
            raise ValueError(f"it has {size:,} bytes, more than {MAX_BYTES:,}")
        yield file


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return how to turn the image upright by its EXIF orientation."""
    from PIL.Image import Transpose

    try:
        orientation = image.getexif().get(0x0112, 1)
    except Exception:  # damaged metadata around sound pixels: most viewers show it as it is
        return None
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return turns.get(orientation)
