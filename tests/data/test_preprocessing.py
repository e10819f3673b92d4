"""Preprocessing: fitted values, hashing against a plain reading of its definition, saved forms."""

import io
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proselflc.data.dataset import Bytes, Features, ImageFiles, Images, Inputs, Texts
from proselflc.data.preprocessing import (
    ImageScaling,
    Preprocessing,
    Standardization,
    TextHashing,
    fit,
    from_json,
    warped,
)
from proselflc.errors import InputError


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# Images


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


def test_warp_ignores_the_aspect_and_is_pillows_bilinear() -> None:
    array = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
    expected = Image.fromarray(array).resize((20, 10), Image.Resampling.BILINEAR)
    whole = warped(encode(array), (10, 20))
    assert np.array_equal(whole, np.asarray(expected).transpose(2, 0, 1))
    grey = warped(encode(array), (10, 20), channels=1)
    assert grey.shape == (1, 10, 20)
    assert np.abs(grey[0].astype(int) - np.asarray(expected.convert("L"))).max() <= 1


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(5, 60),
    width=st.integers(5, 60),
    size=st.tuples(st.integers(4, 30), st.integers(4, 30)),
    data=st.data(),
)
def test_a_window_is_cut_out_of_the_warped_image(
    height: int, width: int, size: tuple[int, int], data: st.DataObject
) -> None:
    array = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    h, w = data.draw(st.integers(1, size[0])), data.draw(st.integers(1, size[1]))
    top, left = data.draw(st.integers(0, size[0] - h)), data.draw(st.integers(0, size[1] - w))
    whole = warped(encode(array, "BMP"), size)[:, top : top + h, left : left + w]
    window = warped(encode(array, "BMP"), size, window=(top, left, h, w))
    assert window.shape == (3, h, w)
    assert np.abs(window.astype(int) - whole).max() <= 1


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
    with pytest.raises(ValueError, match="it is no JPEG"):
        warped(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", (8, 8))
    with pytest.raises(ValueError, match="not a regular file"):
        warped(tmp_path, (8, 8))
    missing = ImageFiles((tmp_path / "missing.png",))
    with pytest.raises(InputError, match=r"cannot read the image .*missing\.png: there is no such"):
        ImageScaling.fit(missing)


def test_a_warp_smaller_than_the_crop_is_refused() -> None:
    with pytest.raises(InputError, match="warp to at least the size of the crop"):
        ImageScaling.fit(ImageFiles((Path("a.png"),)), size=(10, 10), warp=(12, 9))


# Texts

FNV_PRIME, FNV_BASIS, MASK = 0x100000001B3, 0xCBF29CE484222325, 2**64 - 1


def fnv(units: list[int], basis: int = FNV_BASIS) -> int:
    value = basis
    for unit in units:
        value = ((value ^ unit) * FNV_PRIME) & MASK
    return value


def mixed(value: int) -> int:
    value = ((value ^ (value >> 32)) * FNV_PRIME) & MASK
    return value ^ (value >> 29)


def plain_buckets(text: str, hashing: TextHashing) -> list[int]:
    """The definition, one run at a time with Python's integers."""
    words = unicodedata.normalize("NFKC", text[: hashing.letters]).lower().split()
    found: list[int] = []
    for n in range(hashing.words[0], hashing.words[1] + 1):
        for i in range(len(words) - n + 1):
            units = [fnv([ord(c) for c in word[:64]]) for word in words[i : i + n]]
            found.append(mixed(fnv(units, FNV_BASIS ^ n)) % hashing.buckets)
    for n in range(hashing.characters[0], hashing.characters[1] + 1):
        for word in words:
            edged = f" {word} "
            for i in range(len(edged) - n + 1):
                if run := edged[i : i + n].strip(" "):
                    units = [ord(c) for c in edged[i : i + n]]
                    assert run
                    found.append(mixed(fnv(units, FNV_BASIS ^ (256 + n))) % hashing.buckets)
    return list(dict.fromkeys(found))


def everything(buckets: int = 2**12, **changes: object) -> TextHashing:
    options: dict[str, object] = {
        "words": (1, 2),
        "characters": (3, 5),
        "longest": 10_000,
        "letters": 1000,
        **changes,
    }
    return TextHashing(buckets, seen=b"\xff" * (buckets // 8), **options)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.text(max_size=40) | st.text("ab \t\nÄß", max_size=30), max_size=5),
    words=st.sampled_from([(1, 2), (1, 3), (2, 2), (1, 0)]),
    characters=st.sampled_from([(3, 5), (1, 2), (2, 4), (1, 0)]),
)
def test_hashing_is_its_definition(
    texts: list[str], words: tuple[int, int], characters: tuple[int, int]
) -> None:
    hashing = everything(words=words, characters=characters)
    x = hashing(Texts(tuple(texts)))
    assert x.dtype is torch.int64
    assert x.shape[0] == len(texts)
    for row, text in zip(x.tolist(), texts, strict=True):
        # With every bucket in use, bucket b has number b + 1.
        expected = [bucket + 1 for bucket in plain_buckets(text, hashing)]
        assert sorted(row[: len(expected)]) == sorted(expected)
        assert not any(row[len(expected) :])
        many = min(len(expected), len(text.split()))
        if words == (1, 2) and characters == (3, 5):
            assert row[:many] == expected[:many]


def test_hashes_are_pinned() -> None:
    hashing = everything(2**18, characters=(1, 0))
    pinned = [208279, 43389, 189840, 244573, 108362]
    assert [number - 1 for number in hashing(Texts(("Barka da zuwa",)))[0].tolist()] == pinned
    assert plain_buckets("Barka da zuwa", hashing) == pinned


def test_case_width_and_space_do_not_matter() -> None:
    x = everything()(Texts(("Hello  World", "hello\nworld", "ＨＥＬＬＯ　ｗｏｒｌｄ ")))
    assert torch.equal(x[0], x[1])
    assert torch.equal(x[0], x[2])


def test_texts_of_a_chunk_do_not_touch_each_other() -> None:
    many = tuple(f"word{i} next{i % 7}" for i in range(500))
    together = everything()(Texts(many))
    for i in (0, 1, 250, 499):
        alone = everything()(Texts((many[i],)))[0]
        assert torch.equal(together[i, : len(alone)], alone)


def test_chunks_do_not_change_bags() -> None:
    long = " ".join(f"w{i}" for i in range(150))
    texts = Texts(tuple(f"{long} {i}" for i in range(1500)))  # over a million letters
    bags = everything().bags(texts)
    assert len(bags.bounds) == 1501
    last = bags.padded(np.array([1499]))
    assert torch.equal(last, everything()(Texts((texts.texts[-1],))))


def test_only_what_several_training_texts_share_is_numbered() -> None:
    train = Texts(("red apple", "red pear", "blue sky"))
    hashing = TextHashing.fit(train, characters=(1, 0))
    assert hashing.num_embeddings == 2  # "red", and 0
    assert hashing(Texts(("a red car", "green", "")))[:, 0].tolist() == [1, 0, 0]
    everything_seen = TextHashing.fit(train, characters=(1, 0), min_examples=1)
    assert everything_seen.num_embeddings == 1 + 5 + 3  # words and pairs
    x = everything_seen(train)
    assert x.shape == (3, 3)
    assert sorted(set(x.flatten().tolist())) == list(range(1, 9))


def test_numbers_fit_an_embedding_bag() -> None:
    train = Texts(("red apple", "red pear", "blue apple sky", ""))
    hashing = TextHashing.fit(train)
    bag = torch.nn.EmbeddingBag(hashing.num_embeddings, 3, padding_idx=0)
    out = bag(hashing(train))
    assert out.shape == (4, 3)
    assert not out[3].any()
    assert bool(torch.isfinite(out).all())


def test_an_overlong_text_keeps_its_words() -> None:
    hashing = everything(longest=4)
    x = hashing(Texts(("one two three four five", "six")))
    assert x.shape == (2, 4)
    alone = everything(characters=(1, 0), words=(1, 1))(Texts(("one two three four five",)))
    assert torch.equal(x[0], alone[0, :4])
    cut = everything(letters=3)(Texts(("one two",)))
    assert torch.equal(cut, everything()(Texts(("one",))))


def test_a_word_of_a_million_letters_is_no_trouble() -> None:
    hashing = everything(letters=20_000)
    x = hashing(Texts(("x" * 1_000_000, "\ufdfa" * 1000, "\ud800 lone")))
    assert x.shape[0] == 3


def test_texts_without_anything_in_common_are_refused() -> None:
    with pytest.raises(InputError, match="is this the text column"):
        TextHashing.fit(Texts(("abc", "xyz")))
    with pytest.raises(InputError, match="power of two"):
        TextHashing.fit(Texts(("abc", "abc")), buckets=100)


# Tables


def test_columns_come_out_with_mean_0_and_deviation_1() -> None:
    values = np.random.default_rng(0).normal([5, -1e4, 1e-6], [3, 1e-1, 1e-7], (400, 3))
    features = Features(values.astype(np.float32))
    x = Standardization.fit(features, chunk=37)(features).double()
    assert float(x.mean(0).abs().max()) < 1e-4
    assert float((x.std(0, correction=0) - 1).abs().max()) < 1e-4


def test_fit_is_numpys_mean_and_deviation_for_every_chunk() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    for chunk in (1, 7, 1000):
        fitted = Standardization.fit(Features(values), chunk=chunk)
        np.testing.assert_allclose(fitted.mean, values.astype(np.float64).mean(0), rtol=1e-12)
        np.testing.assert_allclose(fitted.std, values.astype(np.float64).std(0), rtol=1e-12)


def test_a_constant_column_is_zero_now_and_later() -> None:
    train = Features(np.array([[0.1, 1], [0.1, 2], [0.1, 6]], np.float32))
    fitted = Standardization.fit(train)
    assert fitted.std[0] == 0
    later = fitted(Features(np.array([[1e30, 3], [-5, 3]], np.float32)))
    assert later.tolist() == [[0, 0], [0, 0]]


def test_far_outliers_stay_finite() -> None:
    fitted = Standardization((0.0,), (1e-30,))
    x = fitted(Features(np.array([[3e38], [-3e38], [0]], np.float32)))
    assert x[:, 0].tolist() == [1e6, -1e6, 0]


def test_only_the_training_part_counts() -> None:
    train = Features(np.array([[1.0], [3.0]], np.float32))
    assert Standardization.fit(train)(Features(np.array([[5.0]], np.float32))).item() == 3.0


def test_columns_are_matched_by_name() -> None:
    train = Features(np.array([[1, 10], [3, 30]], np.float32), ("a", "b"))
    fitted = Standardization.fit(train)
    swapped = Features(np.array([[30, 9, 3]], np.float32), ("b", "extra", "a"))
    assert fitted(swapped).tolist() == [[1, 1]]
    with pytest.raises(InputError, match=r'column "b" .* is missing; columns here: a, c'):
        fitted(Features(np.zeros((1, 2), np.float32), ("a", "c")))
    with pytest.raises(InputError, match="2 features per example, got 3"):
        fitted(Features(np.zeros((1, 3), np.float32)))


# All of them

EXAMPLES: list[tuple[Inputs, Preprocessing]] = [
    (noise_images(), ImageScaling.fit(noise_images())),
    (Texts(("red apple", "red pear")), TextHashing.fit(Texts(("red apple", "red pear")))),
    (
        Features(np.eye(3, dtype=np.float32), ("a", "b", "c")),
        Standardization.fit(Features(np.eye(3, dtype=np.float32), ("a", "b", "c"))),
    ),
    (noise_images(channels=1), ImageScaling.fit(noise_images(channels=1))),
    (Features(np.eye(2, dtype=np.float32)), fit(Features(np.eye(2, dtype=np.float32)))),
]


@pytest.mark.parametrize(("inputs", "fitted"), EXAMPLES)
def test_what_is_saved_serves_as_well(inputs: Inputs, fitted: Preprocessing) -> None:
    text = json.dumps(fitted.to_json(), allow_nan=False)
    again = from_json(json.loads(text))
    assert again == fitted
    assert torch.equal(again(inputs), fitted(inputs))
    assert type(fit(inputs)) is type(fitted)


@pytest.mark.parametrize("index", range(3))
def test_other_kinds_of_inputs_are_refused(index: int) -> None:
    fitted = EXAMPLES[index][1]
    for other, (inputs, _) in enumerate(EXAMPLES[:3]):
        if other != index:
            with pytest.raises(InputError, match="this model was made for"):
                fitted(inputs)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_hostile_saved_forms_are_refused_or_work(data: st.DataObject) -> None:
    inputs, fitted = data.draw(st.sampled_from(EXAMPLES))
    saved = fitted.to_json()
    for _ in range(data.draw(st.integers(1, 2))):
        saved[data.draw(st.sampled_from([*saved, "more"]))] = data.draw(VALUES)
    why = "made for these inputs"
    try:
        assert bool(torch.isfinite(from_json(saved)(inputs).double()).all())
    except InputError as error:
        why = str(error)
    assert "\n" not in why
    assert re.search("made for|is missing|not what proselflc writes|unknown|power|begin at 1", why)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [float("nan")] * 3}, "finite"),
        ({"mean": [10**400] * 3}, "finite"),
        ({"mean": [True] * 3}, "finite"),
        ({"std": [0.0, 1.0, 1.0]}, "std be positive"),
        ({"mean": [1e36] * 3}, "mean must lie in"),
        ({"std": [1.0]}, "1 or 3 numbers"),
        ({"size": [2**40, 1]}, "from 1 to 16384"),
        ({"warp": [1, 1]}, "warp must be at least size"),
        ({"kind": "image"}, 'did you mean "images"'),
        ({"kind": 3}, "an object with a kind"),
        ({"surprise": 1}, "must have the fields"),
    ],
)
def test_hostile_image_scaling(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**EXAMPLES[0][1].to_json(), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buckets": 2**40}, "buckets must be a whole number from 8 to"),
        ({"buckets": 24, "seen": "AAAA"}, "power of two"),
        ({"buckets": 16}, "a bit for each"),
        ({"seen": "%%%"}, "base64"),
        ({"seen": "é"}, "base64"),
        ({"seen": None}, "base64"),
        ({"words": [1, 10**9]}, "words must be a whole number from 0 to 16"),
        ({"words": [0, 2]}, "begin at 1"),
        ({"longest": 0}, "longest"),
    ],
)
def test_hostile_text_hashing(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**EXAMPLES[1][1].to_json(), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": []}, "list of numbers"),
        ({"std": [1.0]}, "as many numbers"),
        ({"std": [1.0, -1.0, 1.0]}, "none below 0"),
        ({"columns": ["a", "a", "b"]}, "every column once"),
        ({"columns": ["a", 1, "b"]}, "list of names"),
    ],
)
def test_hostile_standardization(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**EXAMPLES[2][1].to_json(), **changes})


@pytest.mark.parametrize("value", [None, [], "images", 3, {}])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="an object with a kind"):
        from_json(value)
