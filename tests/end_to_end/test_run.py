"""A run leaves a directory that explains itself, as the interface has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

from proselflc.cli import app as cli
from proselflc.data.labels import Labels
from proselflc.data.opening import open_data
from proselflc.data.request import Request

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HISTORY = [
    *("step", "epoch", "progress", "stage", "train_loss", "train_accuracy"),
    *("test_accuracy", "val_accuracy"),
    *("lr", "g", "epsilon", "entropy", "correct_fitting", "wrong_fitting", "semantic_correction"),
    *("entropy_clean", "entropy_noisy", "epsilon_clean", "epsilon_noisy"),
    *("seconds", "images_per_second"),
]
NEEDS_CLEAN = [
    *("correct_fitting", "wrong_fitting", "semantic_correction"),
    *("entropy_clean", "entropy_noisy", "epsilon_clean", "epsilon_noisy"),
]
SUMMARY = [
    *("method", "data", "noise", "seed", "steps", "test_accuracy"),
    *("test_accuracy_at_best_validation", "correct_fitting", "wrong_fitting"),
    *("semantic_correction", "ece", "nll", "brier", "label_accuracy_before"),
    *("label_accuracy_after", "label_accuracy_after_suspects", "detection"),
    *("estimated_noise_rate", "noise_low", "noise_high", "realised_noise_rate", "suspects"),
    *("changes", "expected_precision", "judge", "warnings", "seconds", "fingerprint"),
]
COLUMNS = [
    *("index", "id", "given_label", "suggested_label", "is_suspect", "action", "quality"),
    *("witness", "trust", "entropy", "p_given", "p_suggested", "first_learned_epoch", "flips"),
    *("corrected_distribution", "duplicate_group", "conflicting", "in_test", "outlier"),
]
FILES = {
    *(".lock", "config.toml", "labels.npz", "history.jsonl", "dynamics", "checkpoints"),
    *("model.safetensors", "model.json", "examples.parquet", "summary.json", "evaluation.json"),
    *("audit.json", "audit.npz", "neighbours.npz", "map.npz", "witness.npz", "manifest.json"),
}

Train = Callable[..., Path]


@pytest.fixture
def train(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Train:
    """Trains in this process and gives the run's directory."""

    def train(*options: object, name: str = "run") -> Path:
        out = tmp_path / name
        code = cli.run(["train", *map(str, options), "--out", str(out), "--quiet"])
        assert code == 0, capfd.readouterr().err
        return out

    return train


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose clean labels are known."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("noisy") / "run"
    options = ("--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--epochs", "4")
    assert cli.run(["train", *options, "--seed", "3", "--out", str(out), "--quiet"]) == 0
    return out


def features(path: Path, **more: Any) -> Path:
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    arrays: dict[str, Any] = {"x": generator.normal(size=(90, 4)) + y[:, None], "y": y}
    np.savez(path, **arrays, **more)
    return path


def history(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def summary(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return result


def same_weights(run: Path, other: Path) -> bool:
    return (run / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_the_files(noisy: Path) -> None:
    assert {path.name for path in noisy.iterdir()} == FILES
    assert len(list((noisy / "checkpoints").iterdir())) == 1
    assert not list(noisy.rglob("*.pkl")) + list(noisy.rglob("*.pt"))


def test_the_configuration_is_resolved(noisy: Path) -> None:
    table = tomllib.loads((noisy / "config.toml").read_text())
    assert table["method"] == {
        "name": "proselflc",
        "sharpness": 10.0,
        "midpoint": 0.5,
        "trust": "global*local",
    }
    assert (table["noise"], table["noise_seed"], table["seed"]) == ("pairflip:0.4", 3, 3)
    assert (table["optimizer"], table["epochs"], table["batch_size"]) == ("sgd", 4, 128)
    assert table["versions"]["torch"] == torch.__version__
    assert table["fingerprint"] == summary(noisy)["fingerprint"]


def test_the_labels(noisy: Path) -> None:
    with np.load(noisy / "labels.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {
            *("given", "clean", "flipped", "transition", "names", "ids"),
            *("generator", "fingerprint"),
        }
        assert (arrays["flipped"] == (arrays["given"] != arrays["clean"])).all()
    labels = Labels.load(noisy / "labels.npz")
    truth = open_data(Request(data="digits")).train.labels
    assert labels.clean is not None
    assert (labels.clean == truth).all()


def test_the_history(noisy: Path) -> None:
    lines = history(noisy)
    assert [line["step"] for line in lines] == [11, 22, 33, 44]
    assert [line["epoch"] for line in lines] == [1.0, 2.0, 3.0, 4.0]
    assert [line["progress"] for line in lines] == [0.25, 0.5, 0.75, 1.0]
    assert [line["lr"] for line in lines] == pytest.approx([0.05, 0.05, 0.005, 0.0005])
    assert [line["g"] for line in lines] == pytest.approx(
        [1 / (1 + np.exp(-10 * (t - 0.5))) for t in (0.25, 0.5, 0.75, 1.0)]
    )
    for line in lines:
        assert sorted(line) == sorted(HISTORY)
        assert line.pop("val_accuracy") is None
        assert line.pop("stage") is None
        assert all(isinstance(value, int | float) for value in line.values())
        for name in ("train_accuracy", "test_accuracy", *NEEDS_CLEAN[:3]):
            assert 0 <= line[name] <= 1
        wrong = np.mean(Labels.load(noisy / "labels.npz").flipped)
        for name in ("entropy", "epsilon"):
            parts = (1 - wrong) * line[f"{name}_clean"] + wrong * line[f"{name}_noisy"]
            assert line[name] == pytest.approx(parts)
        fits = (1 - wrong) * line["correct_fitting"] + wrong * line["wrong_fitting"]
        assert line["train_accuracy"] == pytest.approx(fits)
    assert lines[0]["seconds"] < lines[-1]["seconds"]


def test_the_loss_is_the_mean_since_the_last_point(noisy: Path, train: Train) -> None:
    """And an evaluation changes nothing: the run with half as many ends with the same weights."""
    half = train("--config", noisy / "config.toml", "--eval-epochs", 2)
    losses = [line["train_loss"] for line in history(noisy)]
    expected = [(losses[0] + losses[1]) / 2, (losses[2] + losses[3]) / 2]
    assert [line["train_loss"] for line in history(half)] == pytest.approx(expected)
    assert same_weights(half, noisy)


def test_the_summary(noisy: Path) -> None:
    found, last = summary(noisy), history(noisy)[-1]
    assert list(found) == SUMMARY
    assert (found["method"], found["data"], found["noise"]) == (
        *("proselflc", "digits", "pairflip:0.4"),
    )
    assert (found["seed"], found["steps"]) == (3, 44)
    for name in ("test_accuracy", "correct_fitting", "wrong_fitting", "semantic_correction"):
        assert found[name] == pytest.approx(last[name])
    assert found["test_accuracy_at_best_validation"] is None
    assert list(found["detection"]) == ["auroc", "average_precision", "precision", "recall", "f1"]
    flipped = Labels.load(noisy / "labels.npz").flipped
    assert found["realised_noise_rate"] == pytest.approx(flipped.mean())
    assert found["label_accuracy_before"] == pytest.approx(1 - flipped.mean())


def test_the_examples(noisy: Path) -> None:
    table = pq.read_table(noisy / "examples.parquet")
    assert table.column_names == [*COLUMNS, "clean_label"]
    columns = table.to_pydict()
    labels = Labels.load(noisy / "labels.npz")
    assert columns["index"] == list(range(1297))
    assert columns["id"] == list(labels.ids)
    assert columns["given_label"] == [labels.names[k] for k in labels.given]
    assert labels.clean is not None
    assert columns["clean_label"] == [labels.names[k] for k in labels.clean]
    assert all(0 <= value <= 1 for value in columns["quality"])
    assert {len(row) for row in columns["corrected_distribution"]} == {10}
    found = summary(noisy)
    audit = json.loads((noisy / "audit.json").read_text())
    assert audit["suspects"] == sum(columns["is_suspect"])
    assert found["estimated_noise_rate"] == audit["estimated_noise_rate"]
    given, suggested, clean = (
        np.array(columns[f"{name}_label"]) for name in ("given", "suggested", "clean")
    )
    changed = np.array(columns["action"]) == "change"
    after = np.where(changed, suggested, given)
    assert found["label_accuracy_after"] == pytest.approx(np.mean(after == clean))
    assert found["label_accuracy_after_suspects"] == pytest.approx(np.mean(suggested == clean))


def test_the_dynamics(noisy: Path) -> None:
    folder = noisy / "dynamics"
    rows = [np.load(folder / f"epoch-{k:05d}.npy", allow_pickle=False) for k in range(4)]
    given = Labels.load(noisy / "labels.npz").given
    for epoch in rows:
        assert epoch.itemsize <= 16
        assert len(epoch) == 1297
        assert (epoch["predicted"] < 10).all()
        fits = epoch["p_given"] > epoch["p_other"]
        assert (fits == (epoch["predicted"] == given))[epoch["p_given"] != epoch["p_other"]].all()
        assert (epoch["entropy"] <= np.log(10) + 1e-3).all()
    assert rows[0]["trust"].mean() < rows[3]["trust"].mean()  # g grows
    for name in ("recent_p.npy", "recent_target.npy"):
        mean = np.load(folder / name, mmap_mode="r", allow_pickle=False)
        assert (mean.shape, mean.dtype) == ((1297, 10), np.float16)
        np.testing.assert_allclose(mean.astype(float).sum(1), 1, atol=5e-3)


def test_the_model(noisy: Path) -> None:
    described = json.loads((noisy / "model.json").read_text())
    assert described["model"] == "mlp"
    assert described["names"] == [str(k) for k in range(10)]
    weights = load_file(noisy / "model.safetensors")
    checkpoint = next((noisy / "checkpoints").iterdir())
    with safe_open(checkpoint, framework="np") as file:
        for name, value in weights.items():
            assert (file.get_tensor(f"model.{name}") == value).all()


def test_the_config_of_a_run_makes_it_again(noisy: Path, train: Train) -> None:
    again = train("--config", noisy / "config.toml")
    assert same_weights(again, noisy)
    assert (again / "config.toml").read_bytes() == (noisy / "config.toml").read_bytes()
    assert (again / "examples.parquet").read_bytes() == (noisy / "examples.parquet").read_bytes()
    other = train("--config", noisy / "config.toml", "--seed", 4, name="other")
    assert not same_weights(other, noisy)


def test_what_cannot_be_known_is_null(train: Train, tmp_path: Path) -> None:
    data = features(tmp_path / "data.npz")
    run = train("--data", data, "--method", "cce", "--epochs", 2, "--batch-size", 30)
    for line in history(run):
        unknown = {key for key, value in line.items() if value is None}
        assert unknown == {*NEEDS_CLEAN, "test_accuracy", "val_accuracy", "g", "stage"}
    found = summary(run)
    assert {key for key, value in found.items() if value is None} == {
        *("test_accuracy", "test_accuracy_at_best_validation", "correct_fitting", "wrong_fitting"),
        *("semantic_correction", "ece", "nll", "brier", "label_accuracy_before"),
        *("label_accuracy_after", "label_accuracy_after_suspects", "detection"),
        *("realised_noise_rate", "expected_precision"),
    }
    with np.load(run / "labels.npz", allow_pickle=False) as arrays:
        assert "clean" not in arrays
    assert pq.read_table(run / "examples.parquet").column_names == COLUMNS


def test_a_table_needs_no_noise(train: Train, tmp_path: Path) -> None:
    rows = [f"{i % 7},{i % 5},{('cat', 'dog')[i % 2]}" for i in range(40)]
    (tmp_path / "pets.csv").write_text("height,width,label\n" + "\n".join(rows))
    run = train("--data", tmp_path / "pets.csv", "--steps", 3)
    assert json.loads((run / "model.json").read_text())["names"] == ["cat", "dog"]
    assert summary(run)["noise"] == "none"


@pytest.mark.parametrize("method", ["proselflc", "cce"])
def test_clean_labels_never_reach_the_method(train: Train, tmp_path: Path, method: str) -> None:
    """Two data sets that differ in nothing but their true labels teach the same."""
    generator = np.random.default_rng(1)
    options = ("--method", method, "--epochs", 3, "--batch-size", 30)
    runs = []
    for name in "ab":
        data = features(tmp_path / f"{name}.npz", clean=generator.integers(0, 3, 90))
        runs.append(train("--data", data, *options, name=name))
    runs.append(train("--data", features(tmp_path / "c.npz"), *options, name="c"))
    assert same_weights(runs[0], runs[1])
    assert same_weights(runs[0], runs[2])
    for name in ("recent_target.npy", "epoch-00002.npy"):
        assert len({(run / "dynamics" / name).read_bytes() for run in runs}) == 1
    assert history(runs[0])[-1]["wrong_fitting"] != history(runs[1])[-1]["wrong_fitting"]


def test_a_run_shorter_than_an_epoch_has_its_history(train: Train) -> None:
    options = ("--data", "digits", "--noise", "pair:0.4", "--model", "mlp")
    run = train(*options, "--steps", 7, "--eval-steps", 3)
    assert [line["step"] for line in history(run)] == [3, 6, 7]
    assert history(run)[-1]["epoch"] == pytest.approx(7 / 11, abs=1e-6)
    rows = np.load(run / "dynamics" / "epoch-00000.npy")
    assert (rows["predicted"] < 10).sum() == 7 * 128
    assert np.isnan(rows["p_given"]).sum() == 1297 - 7 * 128
    assert summary(run)["steps"] == 7
    quality = pq.read_table(run / "examples.parquet")["quality"].to_pylist()
    assert sum(value is None for value in quality) == 1297 - 7 * 128  # of those never seen
    assert all(0 <= value <= 1 for value in quality if value is not None)
    assert all(0 <= value <= 1 for value in summary(run)["detection"].values() if value)


def test_trusted_examples_choose_and_the_test_set_does_not(train: Train) -> None:
    options = ("--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--epochs", 4)
    run = train(*options, "--trusted", 0.2)
    lines = history(run)
    best = max(lines, key=lambda line: (line["val_accuracy"], -line["step"]))
    assert summary(run)["test_accuracy_at_best_validation"] == best["test_accuracy"]
    assert summary(run)["test_accuracy"] == pytest.approx(lines[-1]["test_accuracy"])
    with np.load(run / "labels.npz") as arrays:
        assert len(arrays["given"]) == pytest.approx(0.8 * 1297, abs=5)
    assert "temperature" in json.loads((run / "evaluation.json").read_text())["validation"]


@pytest.mark.parametrize(
    "options",
    [
        ("--ema", 0.9, "--clip", 1),
        ("--accumulate", 3),
        ("--warmup", 5, "--schedule", "cosine"),
        ("--schedule", "poly", "--optimizer", "adamw", "--lr", 0.001, "--weight-decay", 0.1),
        ("--model", "convnet", "--channels-last", "--augment", "crop"),
        ("--deterministic",),
    ],
    ids=lambda options: options[0],
)
def test_every_way_to_train_runs_and_learns(train: Train, options: tuple[object, ...]) -> None:
    model = () if "--model" in options else ("--model", "mlp")
    run = train("--data", "digits", *model, "--epochs", 4, *options)
    lines = history(run)
    assert lines[-1]["train_loss"] < lines[0]["train_loss"] < 2.5
    config = tomllib.loads((run / "config.toml").read_text())
    for flag, value in zip(options[::2], options[1::2], strict=False):
        if not str(value).startswith("--"):
            assert config[str(flag)[2:].replace("-", "_")] == value


def test_mixed_precision(program: Any, tmp_path: Path) -> None:
    options = ("--data", "digits", "--model", "mlp", "--epochs", 4, "--precision", "bf16")
    # Some virtual machines promise matrix instructions (AMX) and then refuse them.
    without_amx = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    done = program.start(
        "train", *options, "--out", tmp_path / "run", "--quiet", environment=without_amx
    ).wait()
    assert done.code == 0, done.stderr
    lines = history(tmp_path / "run")
    assert lines[-1]["train_loss"] < lines[0]["train_loss"] < 2.5
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}


def test_accumulated_gradients_are_the_gradients_of_the_batch(train: Train) -> None:
    options = ("--data", "digits", "--model", "mlp", "--epochs", 2)
    one, three = train(*options, name="1"), train(*options, "--accumulate", 3, name="3")
    weights, others = (load_file(run / "model.safetensors") for run in (one, three))
    for name in weights:
        np.testing.assert_allclose(weights[name], others[name], atol=1e-6)


def test_the_average_is_what_is_saved(train: Train) -> None:
    options = ("--data", "digits", "--model", "mlp", "--steps", 6)
    last, average = train(*options, name="last"), train(*options, "--ema", 0.9, name="average")
    assert not same_weights(last, average)
    with safe_open(next((average / "checkpoints").iterdir()), framework="np") as file:
        for name, value in load_file(last / "model.safetensors").items():
            assert (file.get_tensor(f"model.{name}") == value).all()
    assert json.loads((average / "model.json").read_text())["averaged"] is True


def test_torch_is_left_as_it_was(train: Train) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        train("--data", "digits", "--model", "mlp", "--steps", 2, "--deterministic")
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    train("--data", "digits", "--model", "mlp", "--steps", 2, "--deterministic", name="other")
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 1
    assert torch.is_grad_enabled()


def test_two_runs_without_a_name_get_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert cli.run(["train", "--data", "digits", "--model", "mlp", "--steps", "1"]) == 0
    assert capfd.readouterr().out == "runs/digits-proselflc-1\nruns/digits-proselflc-2\n"
