"""ImageNet's layouts on small trees."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from proselflc.data.inputs import ImageFiles
from proselflc.data.sources import imagenet
from proselflc.errors import InputError

SYNSETS = ["n01440764", "n01443537", "n02012849", "n03126707"]
VAL = [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 6)]


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(path, format="JPEG")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(*(tmp_path / "train" / s / f"{s}_{i}.JPEG" for s in SYNSETS[::-1] for i in (10, 2)))
    return tmp_path


def flat(root: Path) -> None:
    put(*(root / "val" / name for name in VAL[::-1]))


def test_synset_folders(root: Path) -> None:
    put(root / "val" / SYNSETS[2] / VAL[0], root / "val" / SYNSETS[0] / VAL[1])
    data = imagenet.load(root)
    assert data.name == "imagenet"
    assert data.names == tuple(SYNSETS)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.train.ids[:2] == (
        "train/n01440764/n01440764_10.JPEG",
        "train/n01440764/n01440764_2.JPEG",
    )
    assert isinstance(data.train.inputs, ImageFiles)
    assert all(path.is_file() for path in data.train.inputs.paths)
    assert data.test is not None
    assert data.test.ids == (f"val/{SYNSETS[0]}/{VAL[1]}", f"val/{SYNSETS[2]}/{VAL[0]}")
    assert data.test.labels.tolist() == [0, 2]
    assert data.validation is None


def test_without_validation_images(root: Path) -> None:
    assert imagenet.load(root).test is None


def test_readable_names(root: Path) -> None:
    (root / "words.txt").write_text("n00001740\tentity\nn01440764\ttench, Tinca tinca\n")
    assert imagenet.load(root).names == ("tench", *SYNSETS[1:])
    (root / "LOC_synset_mapping.txt").write_text(
        "n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n"
        "n02012849 crane\nn03126707 crane\n"
    )
    names = imagenet.load(root).names
    assert names == ("tench", "goldfish", "crane (n02012849)", "crane (n03126707)")


def expected(root: Path) -> None:
    data = imagenet.load(root)
    assert data.test is not None
    assert data.test.ids == tuple(f"val/{name}" for name in VAL)
    assert data.test.labels.tolist() == [3, 0, 2, 1, 3]


def test_solution_of_kaggle(tmp_path: Path) -> None:
    base = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    put(*(base / "train" / s / "1.JPEG" for s in SYNSETS))
    flat(base)
    rows = [
        f"{name.removesuffix('.JPEG')},{SYNSETS[k]} 1 2 3 4 {SYNSETS[k]} 5 6 7 8"
        for name, k in zip(VAL, [3, 0, 2, 1, 3], strict=True)
    ]
    (tmp_path / "LOC_val_solution.csv").write_text(
        "\n".join(["ImageId,PredictionString", *rows[::-1]])
    )
    expected(tmp_path)


@pytest.mark.parametrize("by_name", [True, False])
def test_list_with_labels(root: Path, by_name: bool) -> None:
    flat(root)
    labels = [3, 0, 2, 1, 3]
    lines = [f"{name} {SYNSETS[k] if by_name else k}" for name, k in zip(VAL, labels, strict=True)]
    (root / "val.txt").write_text("\n".join(lines) + "\n")
    expected(root)


def meta(path: Path) -> None:
    # The kit's numbers follow another order than the synsets' names; 5 is an inner node.
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    numbered = [*enumerate([SYNSETS[k] for k in (2, 3, 1, 0)], start=1), (5, "n00001740")]
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.array([(i, wnid, "words") for i, wnid in numbered], dtype=kind)
    savemat(path, {"synsets": rows.reshape(-1, 1)})


@pytest.mark.parametrize("folder", ["", "ILSVRC2012_devkit_t12/data"])
def test_ground_truth_of_the_kit(root: Path, folder: str) -> None:
    flat(root)
    meta(root / folder / "meta.mat")
    truth = root / folder / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("2\n4\n1\n3\n2\n")
    expected(root)
    truth.write_text("2\n4\n1\n3\n6\n")
    with pytest.raises(InputError, match='class number "6": expected 1 to 5'):
        imagenet.load(root)
    truth.write_text("2\n4\n1\n3\n")
    with pytest.raises(InputError, match=r"has 4 lines, but .*val holds 5 images"):
        imagenet.load(root)
    (root / folder / "meta.mat").write_bytes(b"garbage" * 100)
    with pytest.raises(InputError, match=r"cannot read .*meta\.mat"):
        imagenet.load(root)
    (root / folder / "meta.mat").unlink()
    with pytest.raises(InputError, match=r"put meta\.mat beside it"):
        imagenet.load(root)


def test_flat_images_without_classes(root: Path) -> None:
    flat(root)
    with pytest.raises(InputError, match=r"no file gives their classes: put LOC_val_solution\.csv"):
        imagenet.load(root)


def test_unlisted_image_by_policy(root: Path) -> None:
    flat(root)
    (root / "val.txt").write_text("\n".join(f"{name} 1" for name in VAL[:4]))
    with pytest.raises(InputError, match=f"{VAL[4]} cannot be used: no list gives its class"):
        imagenet.load(root)
    data = imagenet.load(root, on_bad_image="skip")
    assert data.test is not None
    assert data.test.ids == tuple(f"val/{name}" for name in VAL[:4])
    assert [s.id for s in data.skipped] == [f"val/{VAL[4]}"]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("x.JPEG 4", 'class number "4": expected 0 to 3'),
        ("x.JPEG -1", 'class number "-1"'),
        (f"{VAL[0]} n99999999", 'unknown synset "n99999999"'),
        ("x.JPEG", 'the line "x.JPEG": expected "image label"'),
    ],
)
def test_wrong_lists(root: Path, line: str, match: str) -> None:
    flat(root)
    (root / "val.txt").write_text(line + "\n")
    with pytest.raises(InputError, match=match):
        imagenet.load(root, on_bad_image="skip")


def test_wrong_trees(root: Path) -> None:
    with pytest.raises(InputError, match="has no train folder: ImageNet is expected as"):
        imagenet.load(root / "train")
    (root / "train" / "n00000001").mkdir()
    with pytest.raises(InputError, match=r"no images in .*n00000001: unpack n00000001\.tar"):
        imagenet.load(root)
    (root / "train" / "cats").mkdir()
    with pytest.raises(InputError, match='the folder "cats", which is not a synset'):
        imagenet.load(root)
    (root / "empty" / "train").mkdir(parents=True)
    with pytest.raises(InputError, match="holds no synset folders"):
        imagenet.load(root / "empty")


def test_wrong_validation_trees(root: Path) -> None:
    put(root / "val" / "n00000001" / "1.JPEG")
    with pytest.raises(InputError, match='unknown synset "n00000001"'):
        imagenet.load(root)
    put(root / "val" / "1.JPEG")
    with pytest.raises(InputError, match=r"synset folders and loose images such as 1\.JPEG"):
        imagenet.load(root)


def test_links_are_listed(root: Path) -> None:
    (root / "train" / "n00000009").symlink_to(root / "train" / SYNSETS[0])
    put(root / "val" / SYNSETS[0] / "1.JPEG")
    (root / "val" / SYNSETS[0] / "round").symlink_to(root)
    data = imagenet.load(root)
    assert data.names == tuple(SYNSETS)
    assert [s.id for s in data.skipped] == ["train/n00000009", f"val/{SYNSETS[0]}/round"]


def test_a_development_kit_that_ends_its_reader_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SciPy ends the process for some damaged files: a segmentation fault."""
    (tmp_path / "meta.mat").write_bytes(b"damaged")
    program = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(imagenet, "_READ_SYNSETS", program)
    with pytest.raises(InputError, match="SciPy crashed"):
        imagenet._numbered_synsets(tmp_path / "meta.mat")


def test_a_damaged_development_kit_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "meta.mat").write_bytes(b"damaged" * 100)
    with pytest.raises(
        InputError, match=r"cannot read .*meta\.mat \(.*\): expected the meta"
    ) as one:
        imagenet._numbered_synsets(tmp_path / "meta.mat")
    assert "\n" not in str(one.value)
