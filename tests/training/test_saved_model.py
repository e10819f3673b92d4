"""The model of a finished run, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import proselflc
from proselflc.errors import InputError
from proselflc.training.run_directory import RunDirectory
from proselflc.training.saved_model import SavedModel, finished_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    y = np.arange(30) % 3
    x = np.eye(3, 4)[y] + np.random.default_rng(0).normal(0, 0.3, (30, 4))
    path = tmp_path_factory.mktemp("saved") / "run"
    proselflc.fit(x, y, names=("ant", "bee", "cat"), model="mlp", steps=3, out=path)
    return path


def test_all_that_a_prediction_needs_comes_back(run: Path) -> None:
    saved = SavedModel(finished_run(run))
    assert saved.names == ("ant", "bee", "cat")
    assert saved.model_name == saved.claimed_name == "mlp"
    assert saved.is_ours
    module = saved.read()
    assert not any(one.training for one in module.modules())
    loaded = proselflc.load_run(run)
    assert saved.preprocessing.to_json() == loaded.preprocessing.to_json()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    raw = x.numpy() * np.array(saved.preprocessing.to_json()["std"]) + np.array(
        saved.preprocessing.to_json()["mean"]
    )
    with torch.no_grad():
        p = module(x).softmax(1).numpy()
    np.testing.assert_allclose(loaded.predict(raw).probabilities, p, atol=1e-5)
    assert SavedModel(finished_run(run)).read() is not module


def test_a_model_of_unknown_making_is_not_made(run: Path, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    described = RunDirectory(run).read_json(RunDirectory(run).model)
    for name in ("os:getcwd", "timm:resnet18", None):
        directory.write_json(directory.model, {**described, "model": name})
        saved = SavedModel(directory)
        assert not saved.is_ours
        with pytest.raises(InputError, match=rf"not in the catalogue \({name}\)"):
            saved.read()
    assert SavedModel(directory, made_by="mlp").model_name == "mlp"


def test_a_run_that_is_not_there_is_told_from_those_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> str:
        with pytest.raises(InputError) as caught:
            finished_run(tmp_path / "gone")
        return str(caught.value).removeprefix(f"there is no run {tmp_path / 'gone'}: ")

    assert said() == "proselflc train makes one"
    (tmp_path / "file").write_text("no run")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.toml").write_text("[[[")
    # It will be told when it is named.
    assert said() == f"the runs beside it are {tmp_path / 'damaged'}"
    for k in range(20):
        (tmp_path / f"run{k:02d}").mkdir()
        (tmp_path / f"run{k:02d}" / "config.toml").write_text("")
    assert said().endswith(f"{tmp_path / 'run07'}, …")

    def locked(path: Path, *_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", locked)
    assert said() == "proselflc train makes one"
    monkeypatch.setattr(Path, "iterdir", locked)
    assert said() == "proselflc train makes one"
