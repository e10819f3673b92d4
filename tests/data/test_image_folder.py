"""Image folders: which files become which examples, and what is refused or left out."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proselflc.data import image
from proselflc.data.dataset import ModelNeeds
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import ImageFiles
from proselflc.data.sources import image_folder
from proselflc.errors import InputError

SCALING = ImageScaling((0.5,) * 3, (0.5,) * 3, (200, 200), (200, 200))


def put(root: Path, *names: str) -> None:
    """Make small images, each of another colour."""
    for k, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (k, 0, 0)).save(path)


def test_classes_examples_and_ids(tmp_path: Path) -> None:
    put(tmp_path, "class 10/b.png", "class 9/x/y/deep.JPG", "class 9/a.webp", "class 10/a.tiff")
    put(tmp_path, "class 2/one.gif", "class 2/TWO.BMP", "class 9/z.jpeg")
    (tmp_path / "class 9" / "notes.txt").write_text("no image")
    (tmp_path / "class 9" / ".hidden.png").write_bytes(b"no image")
    put(tmp_path, ".cache/a.png", "__MACOSX/a.png")
    (tmp_path / "README").touch()
    data = image_folder.read(tmp_path).dataset()
    assert data.names == ("class 2", "class 9", "class 10")
    assert data.train.ids == (
        "class 2/TWO.BMP",
        "class 2/one.gif",
        "class 9/a.webp",
        "class 9/x/y/deep.JPG",
        "class 9/z.jpeg",
        "class 10/a.tiff",
        "class 10/b.png",
    )
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert isinstance(data.train.inputs, ImageFiles)
    assert data.train.inputs.paths == tuple(tmp_path / name for name in data.train.ids)
    assert (data.test, data.validation, data.clean, data.skipped) == (None, None, None, ())
    assert data.name == str(tmp_path)


@pytest.mark.parametrize("third", ["val", "validation", "Val"])
def test_splits_share_classes(tmp_path: Path, third: str) -> None:
    put(tmp_path, "train/b/1.png", "train/a/1.png", "train/c/1.png")
    put(tmp_path, "test/c/1.png", "test/b/2.png", f"{third}/c/9.png")
    data = image_folder.read(tmp_path).dataset()
    assert data.names == ("a", "b", "c")
    assert data.train.ids == ("train/a/1.png", "train/b/1.png", "train/c/1.png")
    assert data.test is not None
    assert data.validation is not None
    assert (data.test.ids, data.test.labels.tolist()) == (("test/b/2.png", "test/c/1.png"), [1, 2])
    assert (data.validation.ids, data.validation.labels.tolist()) == ((f"{third}/c/9.png",), [2])


def test_train_may_be_a_class(tmp_path: Path) -> None:
    put(tmp_path, "car/1.png", "train/1.png", "train/nested/2.png", "bus/1.png")
    data = image_folder.read(tmp_path).dataset()
    assert data.names == ("bus", "car", "train")
    assert data.test is None
    assert data.train.labels.tolist() == [0, 1, 2, 2]


def refused(root: Path, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        image_folder.read(root).dataset()
    assert "\n" not in str(caught.value)


def test_what_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none", "does not exist: expected a folder")
    file = tmp_path / "file.png"
    put(tmp_path, "file.png")
    refused(file, "is a file: expected a folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "there are no images in .*empty: expected one folder per class")
    (empty / "a").mkdir()
    (empty / "a" / "x.txt").touch()
    (empty / "a" / "y.doc").touch()
    refused(empty, r"no images in .*a \(only 2 files without an image extension\)")
    put(tmp_path, "one/cat/1.png", "one/cat/2.png")
    refused(tmp_path / "one", 'one class only, "cat"')
    put(tmp_path, "hollow/cat/1.png", "hollow/dog/1.png")
    (tmp_path / "hollow" / "mouse").mkdir()
    refused(tmp_path / "hollow", "there are no images in .*mouse")
    put(tmp_path, "loose/cat/1.png", "loose/dog/1.png", "loose/3.png")
    refused(tmp_path / "loose", r"loose/3\.png is not in a class folder")
    put(tmp_path, "flat/train/1.png", "flat/test/1.png")
    refused(tmp_path / "flat", r"train/1\.png is not in a class folder")
    put(tmp_path, "extra/train/a/1.png", "extra/train/b/1.png", "extra/more/1.png")
    refused(tmp_path / "extra", 'holds "train" with folders inside, as a split has, beside "more"')
    put(tmp_path, "half/a/1.png", "half/b/1.png", "half/test/a/1.png")
    refused(tmp_path / "half", 'holds "test" with folders inside')
    put(tmp_path, "tests/test/a/1.png", "tests/test/b/1.png")
    refused(tmp_path / "tests", 'holds "test" but no "train" folder')
    put(tmp_path, "two/train/a/1.png", "two/train/b/1.png", "two/val/a/1.png")
    put(tmp_path, "two/validation/a/1.png")
    refused(tmp_path / "two", 'holds both "val" and "validation"')


def test_unknown_test_class(tmp_path: Path) -> None:
    put(tmp_path, "train/cats/1.png", "train/dogs/1.png", "test/cat/1.png")
    refused(tmp_path, r'test/cat/1\.png: unknown class "cat"; did you mean "cats"\?')


def test_empty_test_split(tmp_path: Path) -> None:
    put(tmp_path, "train/cats/1.png", "train/dogs/1.png")
    (tmp_path / "test").mkdir()
    refused(tmp_path, "the test split of .* is empty")


def test_bad_images_by_policy(tmp_path: Path) -> None:
    put(tmp_path, "train/a/1.png", "train/a/2.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "train/a/bad.jpg").write_bytes(b"garbage")
    (tmp_path / "train/b/empty.png").touch()
    (tmp_path / "test/a/gone.png").symlink_to(tmp_path / "test/a/nothing.png")
    refused(tmp_path, r"train/a/bad\.jpg \(and 1 more\): it is not a JPEG")
    data = image_folder.read(tmp_path, on_bad_image="skip").dataset()
    assert data.train.ids == ("train/a/1.png", "train/a/2.png", "train/b/1.png")
    assert {s.id: s.reason.split(",")[0] for s in data.skipped} == {
        "train/a/bad.jpg": "it is not a JPEG",
        "train/b/empty.png": "it is empty",
        "test/a/gone.png": "there is no such file",
    }
    (tmp_path / "train/b/1.png").write_bytes(b"garbage")
    with pytest.raises(InputError, match='no image of class "b" can be read'):
        image_folder.read(tmp_path, on_bad_image="skip").dataset()


def test_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "a/1.png", "b/1.png")
    put(tmp_path, "outside/2.png")
    (root / "a" / "round").symlink_to(root, target_is_directory=True)
    (root / "a" / "self").symlink_to(root / "a" / "self")
    (root / "a" / "out.png").symlink_to(tmp_path / "outside" / "2.png")
    (root / "b" / "same.png").symlink_to(root / "b" / "1.png")
    (root / "c").symlink_to(tmp_path / "outside", target_is_directory=True)
    data = image_folder.read(root).dataset()
    assert data.train.ids == ("a/1.png", "b/1.png", "b/same.png")
    assert {s.id for s in data.skipped} == {"a/round", "a/self", "a/out.png", "c"}
    assert all("link" in s.reason for s in data.skipped)
    through = tmp_path / "through"
    through.symlink_to(root, target_is_directory=True)
    assert image_folder.read(through).dataset().train.ids == data.train.ids


def test_only_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(tmp_path, "outside/a/2.png", "outside/b/2.png")
    root.mkdir()
    (root / "train").symlink_to(tmp_path / "outside", target_is_directory=True)
    refused(root, 'no images in .*the link "train", which is not followed.*name the folder that')


def test_a_folder_of_links_per_class(tmp_path: Path) -> None:
    """As `export --links` makes them."""
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    for name in ("1.png", "2.png", "3.png"):
        put(tmp_path / "outside", name)
        (root / "a" / name).symlink_to(tmp_path / "outside" / name)
    refused(
        root,
        r'no images in .*only the link "a/1\.png" and 2 more, which are not followed\): expected .*'
        r"; name the folder that has the files themselves, or make hard links or copies of them$",
    )


def test_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a/1.png", "b/1.png")
    real = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may list everything, so chmod is no test
    refused(tmp_path, "cannot list the folder .*/b: Permission denied")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png")
    os.rename(os.fsencode(tmp_path / "b" / "1.png"), os.fsencode(tmp_path / "b") + b"/\xff.png")
    data = image_folder.read(tmp_path).dataset()
    assert data.train.ids == ("a/1.png", "b/\\xff.png")
    assert data.train.ids[1].encode() == b"b/\\xff.png"
    assert isinstance(data.train.inputs, ImageFiles)
    assert image.probe(data.train.inputs.paths[1], whole=True) is None


def test_order_does_not_depend_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, *(f"{c}/{d}/{i}.png" for c in "abc" for d in "xy" for i in range(5)))
    first = image_folder.read(tmp_path).dataset().train
    real = image_folder.scan

    def backwards(root: Path, below: str = "") -> image_folder.Found:
        found = real(root, below)
        return image_folder.Found(found.images[::-1], found.folders[::-1])

    monkeypatch.setattr(image_folder, "scan", backwards)
    second = image_folder.read(tmp_path).dataset().train
    assert first.ids == second.ids
    np.testing.assert_array_equal(first.labels, second.labels)


def test_opening_decodes_no_pixels(tmp_path: Path) -> None:
    # A hundred of these photographs cannot be decoded, and nobody has noticed.
    picture = Image.effect_noise((200, 200), 50).convert("RGB")
    (tmp_path / "a").mkdir()
    picture.save(tmp_path / "a" / "0.jpg", quality=50)
    content = (tmp_path / "a" / "0.jpg").read_bytes()
    for i in range(1, 400):
        path = tmp_path / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content[: len(content) // 2 if i > 300 else None])
    data = image_folder.read(tmp_path).dataset()
    assert len(data.train) == 400
    assert isinstance(data.train.inputs, ImageFiles)
    cut = data.train.ids.index("b/399.jpg")
    with pytest.raises(InputError, match=r"b/399\.jpg: image file is truncated"):
        SCALING(data.train.inputs.take(np.array([cut])))
    with_care = image_folder.read(tmp_path, on_bad_image="skip").dataset()
    assert len(with_care.train) == 301
    assert len(with_care.skipped) == 99
    assert all("truncated" in skipped.reason for skipped in with_care.skipped)
    assert isinstance(with_care.train.inputs, ImageFiles)
    assert SCALING(with_care.train.inputs.take(np.array([300]))).shape == (1, 3, 200, 200)


NAMES = ("cow", "dog", "cat")


def test_examples_have_the_labels_of_the_model_that_is_asked(tmp_path: Path) -> None:
    put(tmp_path, "cat/deep/1.png", "dog/1.png", "cat/0.png")
    (tmp_path / "cow").mkdir()  # a class without images is no fault here
    parts = image_folder.read(tmp_path, needs=ModelNeeds(NAMES)).parts
    assert list(parts) == ["train"]
    assert parts["train"].ids == ("cat/0.png", "cat/deep/1.png", "dog/1.png")
    assert parts["train"].labels is not None
    assert parts["train"].labels.tolist() == [2, 2, 1]


def test_folders_that_are_no_classes_are_just_folders(tmp_path: Path) -> None:
    for name in ("2024/jan/a.png", "2025/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    found = image_folder.read(tmp_path, needs=ModelNeeds(NAMES)).parts["train"]
    assert found.labels is None
    assert found.ids == ("2024/jan/a.png", "2025/b.png")
    (tmp_path / NAMES[0]).mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / NAMES[0] / "c.png")
    with pytest.raises(InputError, match='unknown class "2024"'):
        image_folder.read(tmp_path, needs=ModelNeeds(NAMES))


def test_images_in_no_folder_are_examples_without_labels(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "a.jpg")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "away.png").symlink_to("/etc/hostname")
    contents = image_folder.read(tmp_path, needs=ModelNeeds(NAMES))
    assert contents.name == str(tmp_path)
    assert [skip.id for skip in contents.skipped] == ["away.png"]
    found = contents.parts["train"]
    assert found.inputs == ImageFiles((tmp_path / "a.jpg", tmp_path / "b.png"))
    assert found.ids == ("a.jpg", "b.png")
    assert found.labels is None


def test_only_the_wanted_splits_are_looked_at(tmp_path: Path) -> None:
    put(tmp_path, "train/cat/1.png", "train/zebra/1.png", "test/9.png", "val/dog/3.png")
    (tmp_path / "train/cat/1.png").write_bytes(b"no image")
    assert image_folder.read(tmp_path, needs=ModelNeeds(NAMES)).parts["test"].ids == ("test/9.png",)
    with pytest.raises(InputError, match='unknown class "zebra"; known: cat, cow, dog'):
        image_folder.read(tmp_path, needs=ModelNeeds(NAMES, "train"))
    with pytest.raises(InputError, match=r"train/cat/1\.png"):
        image_folder.read(tmp_path, needs=ModelNeeds((*NAMES, "zebra"), "all"))
    needs = ModelNeeds((*NAMES, "zebra"), "all")
    contents = image_folder.read(tmp_path, on_bad_image="skip", needs=needs)
    parts = contents.parts
    assert {split: part.ids for split, part in parts.items()} == {
        "train": ("train/zebra/1.png",),
        "test": ("test/9.png",),
        "validation": ("val/dog/3.png",),
    }
    assert [(skip.id, skip.split) for skip in contents.skipped] == [("train/cat/1.png", "train")]
    assert parts["test"].labels is None
    assert parts["validation"].labels is not None
    assert parts["validation"].labels.tolist() == [1]


def test_a_test_folder_alone_will_do_to_be_judged(tmp_path: Path) -> None:
    put(tmp_path, "test/cat/1.png")
    found = image_folder.read(tmp_path, needs=ModelNeeds(NAMES)).parts["test"]
    assert found.labels is not None
    assert found.labels.tolist() == [2]
    refused(tmp_path, 'holds "test" but no "train" folder')


def test_examples_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no images in"):
        image_folder.read(tmp_path, needs=ModelNeeds(NAMES))
    with pytest.raises(InputError, match="does not exist: expected a folder"):
        image_folder.read(tmp_path / "none", needs=ModelNeeds(NAMES))
    put(tmp_path, "loose.png", "cat/1.png")
    with pytest.raises(InputError, match=r'holds images, such as loose\.png, beside .* "cat"'):
        image_folder.read(tmp_path, needs=ModelNeeds(NAMES))
