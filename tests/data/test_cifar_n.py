"""Human labels: read from both formats, checked against the labels they carry."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Images
from proselflc.data.sources import cifar, cifar_n, download
from proselflc.errors import InputError

SHARED = Path(__file__).parents[2] / "../shared/data/cifar-n"
CLEAN = np.arange(40) % 10
SETS = {
    "aggre": "aggre_label",
    "worse": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
}
LABELS = {column: (CLEAN + i) % 10 for i, column in enumerate(SETS.values(), start=1)}
LABELS["clean_label"] = CLEAN


def images(labels: Any, num_classes: int) -> Dataset:
    """CIFAR's labels with one grey pixel each."""
    count = len(labels)
    inputs = Images(np.zeros((count, 1, 1, 1), dtype=np.uint8))
    train = Part(inputs, labels.astype(np.int64), tuple(f"{i}" for i in range(count)))
    return Dataset("cifar", train, tuple(f"class {c}" for c in range(num_classes)), test=train)


@pytest.fixture(autouse=True)
def _small_cifar(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: Path, name: str, *, cache: Path | None = None) -> Dataset:
        return images(CLEAN, 10)

    monkeypatch.setattr(cifar, "load", load)
    monkeypatch.setattr(cifar, "find", lambda name, path, fetch=False: path)


def save(path: Path, labels: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, **labels)
    else:
        torch.save(labels, path)


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
@pytest.mark.parametrize("folder", [".", "cifar-n", "CIFAR-N"])
@pytest.mark.parametrize("chosen", SETS)
def test_every_label_set_is_read_by_its_name(
    tmp_path: Path, suffix: str, folder: str, chosen: str
) -> None:
    save(tmp_path / folder / f"CIFAR-10_human{suffix}", LABELS)
    dataset = cifar_n.load(f"cifar10n:{chosen}", tmp_path)
    np.testing.assert_array_equal(dataset.train.labels, LABELS[SETS[chosen]])
    assert dataset.clean is not None
    np.testing.assert_array_equal(dataset.clean, CLEAN)
    assert dataset.train.labels.dtype == dataset.clean.dtype == np.int64
    assert dataset.name == f"cifar10n:{chosen}"
    assert dataset.test is not None
    np.testing.assert_array_equal(dataset.test.labels, CLEAN)


def test_default_is_the_worst_label(tmp_path: Path) -> None:
    save(tmp_path / "CIFAR-10_human.pt", LABELS)
    dataset = cifar_n.load("cifar10n", tmp_path)
    np.testing.assert_array_equal(dataset.train.labels, LABELS["worse_label"])


@pytest.mark.parametrize(
    "convert",
    [
        torch.as_tensor,
        lambda a: a.astype(np.int32),
        lambda a: a.tolist(),
        lambda a: a.astype(">i8"),
    ],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_tensors_lists_and_other_integers_are_read(
    tmp_path: Path, convert: Any, legacy: bool
) -> None:
    labels = {key: convert(value) for key, value in LABELS.items()}
    torch.save(labels, tmp_path / "CIFAR-10_human.pt", _use_new_zipfile_serialization=not legacy)
    dataset = cifar_n.load("cifar10n:aggre", tmp_path)
    np.testing.assert_array_equal(dataset.train.labels, LABELS["aggre_label"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean_label": CLEAN[::-1]}, "differ from those of cifar for 40 of 40 images"),
        ({"clean_label": CLEAN[::-1]}, "TensorFlow Datasets (TFDS)"),
        ({"clean_label": CLEAN[:39]}, "has 39 clean and 40 human labels, but cifar has 40"),
        ({"worse_label": CLEAN[:39]}, "has 40 clean and 39 human labels"),
        ({"worse_label": CLEAN + 1}, "has label 10, but there are 10 classes"),
        ({"worse_label": CLEAN * 1.0}, "worse_label in"),
        ({"worse_label": CLEAN[:, None]}, "of shape [40, 1], but integers of shape [n]"),
    ],
)
@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_wrong_labels_are_said(
    tmp_path: Path, change: dict[str, Any], message: str, suffix: str
) -> None:
    save(tmp_path / f"CIFAR-10_human{suffix}", LABELS | change)
    with pytest.raises(InputError) as caught:
        cifar_n.load("cifar10n", tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_missing_column_is_said(tmp_path: Path, suffix: str) -> None:
    save(tmp_path / f"CIFAR-10_human{suffix}", {"clean_label": CLEAN})
    with pytest.raises(InputError, match="has no worse_label, only clean_label"):
        cifar_n.load("cifar10n", tmp_path)


def test_unknown_names_are_answered_with_the_likely_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='label set of cifar10n "worst"; did you mean "worse"'):
        cifar_n.load("cifar10n:worst", tmp_path)
    with pytest.raises(InputError, match="unknown label set of cifar100n"):
        cifar_n.load("cifar100n:worse", tmp_path)
    with pytest.raises(InputError, match='did you mean "cifar10n"'):
        cifar_n.load("cifar-10n", tmp_path)
    assert set(cifar_n.NAMES) == {f"cifar10n:{s}" for s in SETS} | {"cifar100n:noisy"}


def test_missing_file_says_which_one_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="labels of cifar10n:aggre were not found") as caught:
        cifar_n.load("cifar10n:aggre", tmp_path)
    assert f"CIFAR-10_human.pt at {tmp_path / 'cifar-n' / 'CIFAR-10_human.pt'}" in str(caught.value)

    def fetch(name: str, root: Path) -> tuple[Path, ...]:
        save(root / f"{name}.pt", LABELS)
        return (root / f"{name}.pt",)

    monkeypatch.setattr(download, "fetch", fetch)
    dataset = cifar_n.load("cifar10n:aggre", tmp_path, fetch=True)
    np.testing.assert_array_equal(dataset.train.labels, LABELS["aggre_label"])


class Hostile:
    def __init__(self, function: Any, argument: str) -> None:
        self.function, self.argument = function, argument

    def __reduce__(self) -> Any:
        return self.function, (self.argument,)


@pytest.mark.parametrize(
    ("function", "argument", "name"),
    [
        (os.system, "mkdir made", "system"),
        (os.mkdir, "made", "mkdir"),
        (eval, "__import__('os').mkdir('made')", "eval"),
    ],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_hostile_pt_is_refused_by_name_and_nothing_runs(
    tmp_path: Path,
    function: Any,
    argument: str,
    name: str,
    legacy: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "CIFAR-10_human.pt"
    hostile = {"clean_label": Hostile(function, argument)}
    torch.save(hostile, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(InputError, match=rf'is refused: this pickle asks for "\w*\.?{name}"'):
        cifar_n.load("cifar10n", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_numpys_own_dangerous_types_are_refused(tmp_path: Path) -> None:
    labels = {"clean_label": np.array([None, {}], dtype=object), "worse_label": CLEAN}
    torch.save(labels, tmp_path / "CIFAR-10_human.pt")
    with pytest.raises(InputError, match="O8"):
        cifar_n.load("cifar10n", tmp_path)


def test_stand_ins_are_not_left_allowed(tmp_path: Path) -> None:
    save(tmp_path / "CIFAR-10_human.pt", LABELS)
    before = {repr(allowed) for allowed in torch.serialization.get_safe_globals()}
    cifar_n.load("cifar10n", tmp_path)
    assert {repr(allowed) for allowed in torch.serialization.get_safe_globals()} == before
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "CIFAR-10_human.pt", weights_only=True)


def test_declared_size_is_checked_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "CIFAR-10_human.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(80 << 20))
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match=r"declares 83,886,080 bytes"):
        cifar_n.load("cifar10n", tmp_path)


@pytest.mark.parametrize("data", [b"", b"hello", bytes(300), b"PK\x03\x04" + bytes(100)])
def test_what_is_no_pt_file_is_a_plain_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "CIFAR-10_human.pt").write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged or not a \.pt file"):
        cifar_n.load("cifar10n", tmp_path)


def test_pt_with_something_else_inside_is_a_plain_error(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "CIFAR-10_human.pt")
    with pytest.raises(InputError, match="holds a list, not a CIFAR-N dictionary"):
        cifar_n.load("cifar10n", tmp_path)


@given(
    edits=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=5),
    keep=st.integers(0, 4000),
    legacy=st.booleans(),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_files_give_a_data_set_or_a_plain_error(
    tmp_path: Path, edits: list[tuple[int, int]], keep: int, legacy: bool
) -> None:
    path = tmp_path / "CIFAR-10_human.pt"
    torch.save(LABELS, path, _use_new_zipfile_serialization=not legacy)
    damaged = bytearray(path.read_bytes())
    for position, value in edits:
        damaged[position % len(damaged)] = value
    path.write_bytes(damaged[: keep if keep < len(damaged) // 2 else None])
    result = outcome(tmp_path)
    if isinstance(result, Dataset):
        np.testing.assert_array_equal(np.array(result.clean), CLEAN)
    else:
        assert path.name in str(result) or "cifar10n" in str(result)


def outcome(root: Path) -> Dataset | InputError:
    try:
        return cifar_n.load("cifar10n", root)
    except InputError as error:
        return error


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real CIFAR-100N is not there")
@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_real_files_of_both_formats_hold_the_same(suffix: str) -> None:
    published = np.load(SHARED / "CIFAR-100_human.npz")
    cifar100 = images(published["clean_label"], 100)
    path = SHARED / f"CIFAR-100_human{suffix}"
    dataset = cifar_n.with_human_labels(cifar100, path, "noisy_label", "cifar100n")
    np.testing.assert_array_equal(dataset.train.labels, published["noisy_label"])
    assert dataset.clean is not None
    assert abs(float((dataset.train.labels != dataset.clean).mean()) - 0.402) < 0.0005
