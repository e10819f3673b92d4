"""The data of a run, opened anew: the same examples in the same order, or a sentence on why not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from PIL import Image

from proselflc.data import noise
from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Features, ImageFiles, Images, Ints, Texts
from proselflc.data.labels import from_dataset
from proselflc.data.opening import open_data
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.sources import download
from proselflc.data.splits import Split, with_split
from proselflc.errors import InputError
from proselflc.run import original
from proselflc.run.reader import Run


def made(
    path: Path, request: Request, *, train: Ints | None = None, spec: str | None = None
) -> Run:
    """A run directory as training on the request begins it, with these of its examples."""
    dataset: Dataset = open_data(request)
    config: dict[str, Any] = {"fingerprint": "", "versions": {}}
    result = None
    if spec is not None:
        config["noise"] = spec
        kind = noise.parse(spec)
        truth = dataset.train.labels if dataset.clean is None else dataset.clean
        result = noise.corrupt(
            truth, dataset.num_classes, kind=kind.kind, rate=kind.rate, generator=noise.stream(0)
        )
        dataset = dataset.with_labels(result.given, truth)
    if train is not None:
        rest = np.setdiff1d(np.arange(len(dataset.train)), train)
        dataset = with_split(dataset, Split(train, rest))
    path.mkdir()
    from_dataset(dataset, None).save(path / "labels.npz")
    for name in (field.name for field in fields(Request)):
        value = getattr(request, name)
        if value is not None and value != ():
            config[name] = str(value)
    (path / "config.toml").write_text(tomli_w.dumps(config))
    return Run(path)


def table(path: Path, rows: int = 6, *, ids: bool = False) -> Path:
    heading = "id,a,label" if ids else "a,label"
    cells = [f"{i}.5,{'dog' if i % 2 else 'cat'}" for i in range(rows)]
    lines = [f"row {i},{line}" if ids else line for i, line in enumerate(cells)]
    path.write_text("\n".join([heading, *lines]))
    return path


def images(path: Path) -> Path:
    for k in range(6):
        name = path / ("cat" if k < 3 else "dog") / f"{k}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (k, 0, 0)).save(name)
    return path


def test_what_was_asked_for(tmp_path: Path) -> None:
    table(tmp_path / "d.csv")
    wanted = Request(
        str(tmp_path / "d.csv"), label_column="label", on_bad_image="skip", cache=tmp_path / "c"
    )
    run = made(tmp_path / "run", wanted)
    found = original.request(run)
    assert found.data == wanted.data
    assert found.label_column == "label"
    assert found.on_bad_image == "skip"
    assert found.cache is None  # looking at data writes nothing
    assert original.request(run, data="elsewhere.csv").data == "elsewhere.csv"


def test_features_in_the_order_of_the_run(tmp_path: Path) -> None:
    run = made(tmp_path / "run", Request(str(table(tmp_path / "d.csv"))), train=np.array([1, 4, 5]))
    inputs = original.inputs(run)
    assert isinstance(inputs, Features)
    assert inputs.values[:, 0].tolist() == [1.5, 4.5, 5.5]


def test_rows_that_moved_are_found_by_their_id(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", ids=True)
    run = made(tmp_path / "run", Request(str(path)))
    heading, *lines = path.read_text().splitlines()
    path.write_text("\n".join([heading, "new,9.5,cat", *lines[::-1]]))
    inputs = original.inputs(run)
    assert isinstance(inputs, Features)
    assert inputs.values[:, 0].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]


def test_image_files(tmp_path: Path) -> None:
    folder = images(tmp_path / "photos")
    run = made(tmp_path / "run", Request(str(folder)), train=np.array([0, 2, 3, 5]))
    inputs = original.inputs(run)
    assert isinstance(inputs, ImageFiles)
    assert inputs.paths == tuple(folder / name for name in run.labels.ids)


def test_images_rather_than_their_embeddings(tmp_path: Path) -> None:
    np.save(tmp_path / "emb.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    wanted = Request(str(images(tmp_path / "photos")), features=tmp_path / "emb.npy")
    assert isinstance(original.inputs(made(tmp_path / "run", wanted)), ImageFiles)


def test_embeddings_where_there_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("label\n" + "cat\ndog\n" * 3)
    np.save(tmp_path / "emb.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    wanted = Request(str(tmp_path / "d.csv"), features=tmp_path / "emb.npy")
    inputs = original.inputs(made(tmp_path / "run", wanted, train=np.array([1, 2])))
    assert isinstance(inputs, Features)
    assert inputs.values.tolist() == [[2, 3], [4, 5]]


def test_texts_and_named_sets(tmp_path: Path) -> None:
    (tmp_path / "d.tsv").write_text("text\tlabel\n" + "meow\tcat\nwoof\tdog\n")
    inputs = original.inputs(made(tmp_path / "run", Request(str(tmp_path / "d.tsv"))))
    assert inputs == Texts(("meow", "woof"))
    digits = original.inputs(made(tmp_path / "digits", Request("digits"), spec="pairflip:0.4"))
    assert isinstance(digits, Images)
    assert len(digits) == 1297


def test_other_labels_are_not_needed(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("name\n" + "dog\ncat\n" * 3)
    wanted = Request(str(images(tmp_path / "p")), labels=tmp_path / "l.csv", label_column="name")
    run = made(tmp_path / "run", wanted)
    (tmp_path / "l.csv").unlink()
    assert len(original.inputs(run)) == 6


def test_data_that_has_moved(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv")
    run = made(tmp_path / "run", Request(str(path)))
    path.rename(tmp_path / "moved.csv")
    with pytest.raises(InputError, match=r"is missing: there is no .*d\.csv, looked up from"):
        original.inputs(run)
    assert len(original.inputs(run, data=str(tmp_path / "moved.csv"))) == 6


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object) -> None:
        raise AssertionError("it was")

    monkeypatch.setattr(download, "fetch", fetch)
    run = made(tmp_path / "run", Request("digits"))
    config = {"data": "cifar10", "data_root": str(tmp_path / "gone")}
    run.directory.config.write_text(tomli_w.dumps(config))
    with pytest.raises(InputError, match=r"the data of .* is missing: there is no"):
        original.inputs(Run(run.path))


def test_rows_that_are_gone(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv")
    run = made(tmp_path / "run", Request(str(path)))
    table(path, rows=4)
    with pytest.raises(
        InputError,
        match=r'has changed since training: 2 of 6 examples are missing, the first is "4": restore',
    ):
        original.inputs(run)


@pytest.mark.parametrize("spec", [None, "pairflip:0.5"])
def test_rows_that_are_others_now(tmp_path: Path, spec: str | None) -> None:
    path = table(tmp_path / "d.csv")
    run = made(tmp_path / "run", Request(str(path)), spec=spec)
    assert len(original.inputs(run)) == 6
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[2:], lines[1]]))
    with pytest.raises(InputError, match=r'changed since training: "0" was "cat" and is "dog" now'):
        original.inputs(run)


def test_noise_on_data_that_knows_the_truth(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,label,clean\n" + "1,cat,dog\n2,dog,dog\n3,cat,cat\n" * 2)
    run = made(tmp_path / "run", Request(str(tmp_path / "d.csv")), spec="pairflip:0.5")
    assert len(original.inputs(run)) == 6


def test_data_from_python(tmp_path: Path) -> None:
    run = made(tmp_path / "run", Request("digits"))
    text = run.directory.config.read_text().replace('"digits"', f'"{FROM_PYTHON}"')
    run.directory.config.write_text(text)
    with pytest.raises(InputError, match="was given in Python and is not on disk"):
        original.inputs(Run(run.path))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ('data = ["a"]\n', "is damaged: expected `str`, got `array` at `\\$.data`"),
        ('data = "digits"\nlabels = 3\n', "is damaged: expected `str`, got `int` at `\\$.labels`"),
        ("", "does not say which data the run was made from"),
        ('data = "digits"\non_bad_image = "eat"\n', "is damaged: invalid enum value 'eat'"),
    ],
)
def test_a_damaged_config(tmp_path: Path, config: str, sentence: str) -> None:
    (tmp_path / "config.toml").write_text(config)
    with pytest.raises(InputError, match=sentence):
        original.request(Run(tmp_path))
