"""Clothing1M on a small tree laid out as published."""

from pathlib import Path

import pytest
from PIL import Image

from proselflc.data.inputs import ImageFiles
from proselflc.data.sources import clothing1m
from proselflc.errors import InputError

KEYS = [f"images/{i % 3}/0{i}/{i},{i * 7}.jpg" for i in range(10)]


@pytest.fixture(params=["", "annotations"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    for key in KEYS:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / key)
    lists = tmp_path / request.param
    lists.mkdir(exist_ok=True)
    noisy, val, test = KEYS[:6], KEYS[6:8], KEYS[8:]
    (lists / "noisy_train_key_list.txt").write_text("\n".join(noisy) + "\n")
    (lists / "noisy_label_kv.txt").write_text("".join(f"{k} {i}\n" for i, k in enumerate(KEYS)))
    (lists / "clean_train_key_list.txt").write_text("")
    (lists / "clean_val_key_list.txt").write_text("\r\n".join(val) + "\r\n")
    (lists / "clean_test_key_list.txt").write_text("\n".join(test))
    (lists / "clean_label_kv.txt").write_text(
        "".join(f"{k} {13 - i}\n" for i, k in enumerate(KEYS[6:]))
    )
    return tmp_path


def lists(tree: Path) -> Path:
    return tree / "annotations" if (tree / "annotations").is_dir() else tree


def test_published_layout(tree: Path) -> None:
    data = clothing1m.load(tree)
    assert data.name == "clothing1m"
    assert len(data.names) == 14
    assert (data.names[0], data.names[8], data.names[13]) == ("T-Shirt", "Down Coat", "Underwear")
    assert data.train.ids == tuple(KEYS[:6])
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert isinstance(data.train.inputs, ImageFiles)
    assert data.train.inputs.paths[3] == tree / KEYS[3]
    assert data.validation is not None
    assert data.test is not None
    assert (data.validation.ids, data.validation.labels.tolist()) == (tuple(KEYS[6:8]), [13, 12])
    assert (data.test.ids, data.test.labels.tolist()) == (tuple(KEYS[8:]), [11, 10])
    assert data.skipped == ()


def test_names_of_the_file(tree: Path) -> None:
    names = [f"kind {i}" for i in range(14)]
    (lists(tree) / "category_names_eng.txt").write_text("\n".join(names) + "\n")
    assert clothing1m.load(tree).names == tuple(names)
    (lists(tree) / "category_names_eng.txt").write_text("\n".join(names[:13]))
    with pytest.raises(InputError, match="has 13 different class names, but Clothing1M has 14"):
        clothing1m.load(tree)


def test_missing_list_is_named(tree: Path) -> None:
    (lists(tree) / "clean_val_key_list.txt").unlink()
    with pytest.raises(InputError, match=r"clean_val_key_list\.txt does not exist"):
        clothing1m.load(tree)


def test_missing_images_and_labels_by_policy(tree: Path) -> None:
    (tree / KEYS[1]).unlink()
    kept = [f"{k} {i}\n" for i, k in enumerate(KEYS) if i != 4]
    (lists(tree) / "noisy_label_kv.txt").write_text("".join(kept))
    with pytest.raises(InputError, match=rf"{KEYS[1]} \(and 1 more\).*no image ") as caught:
        clothing1m.load(tree)
    assert caught.value.field == "on_bad_image"
    data = clothing1m.load(tree, on_bad_image="skip")
    assert data.train.ids == (KEYS[0], KEYS[2], KEYS[3], KEYS[5])
    assert data.train.labels.tolist() == [0, 2, 3, 5]
    assert [s.id for s in data.skipped] == [KEYS[1], KEYS[4]]
    assert "no label" in data.skipped[1].reason


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("images/0/00/x.jpg 14", r"line 11 of .*noisy_label_kv\.txt .*label from 0 to 13"),
        ("images/0/00/x.jpg -1", "line 11"),
        ("images/0/00/x.jpg", "line 11"),
        ("5", "line 11"),
        (f"{KEYS[0]} 7", "line 11 .* label 7, but another line says 0"),
    ],
)
def test_wrong_labels_are_named_by_line(tree: Path, line: str, match: str) -> None:
    with (lists(tree) / "noisy_label_kv.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=match):
        clothing1m.load(tree)


@pytest.mark.parametrize("key", ["../secret.jpg", "/etc/x.jpg", "images/../../x.jpg"])
def test_keys_stay_inside(tree: Path, key: str) -> None:
    (lists(tree) / "clean_test_key_list.txt").write_text(f"{KEYS[8]}\n{key}\n")
    with pytest.raises(InputError, match="leads out of the data"):
        clothing1m.load(tree, on_bad_image="skip")


def test_key_twice(tree: Path) -> None:
    (lists(tree) / "noisy_train_key_list.txt").write_text("\n".join([*KEYS[:6], KEYS[2]]))
    with pytest.raises(InputError, match=f'the id "{KEYS[2]}" more than once'):
        clothing1m.load(tree)


def test_list_that_is_no_text(tree: Path) -> None:
    (lists(tree) / "noisy_train_key_list.txt").write_bytes(b"images/a.jpg\n\xff\xfe\xfd\n")
    with pytest.raises(InputError, match=r"line 2 of .*noisy_train_key_list\.txt is not UTF-8"):
        clothing1m.load(tree)
