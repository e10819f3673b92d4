"""The whole run from Python: fit, load_run, predict."""

import gc
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.datasets import make_classification
from torch import nn

import proselflc
from proselflc.auditing import witness
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, Floats, Ints
from proselflc.errors import InputError
from proselflc.run.reader import Run
from proselflc.training.loop import DivergenceError


def blobs(n: int = 300) -> tuple[Floats, Ints, Ints]:
    """Three easy clusters: inputs, given labels of which a fifth is wrong, true labels."""
    generator = np.random.default_rng(0)
    clean = generator.integers(3, size=n)
    x = (np.eye(3)[clean] + generator.normal(0, 0.2, (n, 3))).astype(np.float32)
    given = np.where(np.arange(n) % 5 == 0, (clean + 1) % 3, clean)
    return x, given, clean


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    x, given, clean = blobs()
    out = tmp_path_factory.mktemp("fit") / "run"
    return proselflc.fit(
        x, given, clean=clean, x_test=x[:50], y_test=clean[:50], epochs=10, batch_size=32, out=out
    )


def test_a_run_has_what_the_interface_names(run: Run) -> None:
    assert isinstance(run.model, nn.Module)
    assert run.summary["test_accuracy"] == run.history[-1]["test_accuracy"]
    assert run.summary["realised_noise_rate"] == pytest.approx(0.2)
    assert run.examples.num_rows == 300
    assert run.names == ("0", "1", "2")
    assert run.labels.names == run.names
    assert run.config["method"]["name"] == "proselflc"  # type: ignore[index]
    assert len(list(run.dynamics)) == 10
    assert run.recent("p").shape == (300, 3)
    assert set(run.evaluation) == {"test"}


def test_a_run_is_one_short_line(run: Run, tmp_path: Path) -> None:
    suspects = run.audit.suspects
    assert repr(run) == (
        f"Run({str(run.path)!r}, method='proselflc', examples={len(run.labels.ids)}, "
        f"suspects={suspects}, changes={run.audit.changes})"
    )
    assert repr(Run(tmp_path)) == f"Run({str(tmp_path)!r})"
    (tmp_path / "summary.json").write_text("[" * 100_000)
    (tmp_path / "audit.json").write_bytes(b"\xff")
    assert repr(Run(tmp_path)) == f"Run({str(tmp_path)!r})"
    (tmp_path / "summary.json").write_text('{"method": "' + "x" * 5000 + '"}')
    (tmp_path / "audit.json").write_text('{"examples": "many", "suspects": 3}')
    assert repr(Run(tmp_path)) == f"Run({str(tmp_path)!r}, suspects=3)"
    (tmp_path / "audit.json").write_text('{"suspects": 3}' + " " * 10**7)
    assert repr(Run(tmp_path)) == f"Run({str(tmp_path)!r})"


def test_wrong_labels_are_found(run: Run) -> None:
    _, given, clean = blobs()
    suspect = run.examples["is_suspect"].to_numpy()
    assert suspect[given != clean].mean() > 0.9
    assert suspect[given == clean].mean() < 0.1


def test_a_run_is_read_back_and_predicts_the_same(run: Run) -> None:
    x, _, clean = blobs()
    again = proselflc.load_run(run.path)
    first, second = run.predict(x), proselflc.predict(again, torch.from_numpy(x))
    np.testing.assert_array_equal(first.probabilities, second.probabilities)
    np.testing.assert_array_equal(first.labels, first.classes)
    assert first.class_names == [str(k) for k in first.classes]
    assert first.confidence[0] == first.probabilities[0].max()
    assert (first.classes == clean).mean() > 0.9
    by_path = proselflc.predict(str(run.path), x[:3])
    np.testing.assert_allclose(by_path.probabilities.sum(1), 1, rtol=1e-6)
    # The model itself, on what its preprocessing gives, says the same.
    logits = again.model(again.preprocessing(Features(x)))
    torch.testing.assert_close(torch.softmax(logits, 1).detach().numpy(), first.probabilities)


def test_inputs_of_another_form_are_refused(run: Run) -> None:
    with pytest.raises(InputError, match="3"):
        run.predict(np.zeros((2, 5)))
    with pytest.raises(InputError, match="texts"):
        run.predict(["a text"])
    assert run.predict(np.zeros((0, 3))).probabilities.shape == (0, 3)


def test_without_out_the_run_lives_as_long_as_its_result() -> None:
    x, given, _ = blobs()
    result = proselflc.fit(x, given, steps=3)
    path = result.path
    assert (path / "summary.json").is_file()
    assert result.summary["test_accuracy"] is None
    assert result.summary["detection"] is None
    del result
    assert not path.exists()


def test_a_model_of_ones_own_is_trained_in_place(tmp_path: Path) -> None:
    x, given, _ = blobs()
    module = nn.Linear(3, 3)
    before = module.weight.detach().clone()
    result = proselflc.fit(x, given, model=module, steps=5, out=tmp_path / "run")
    assert result.model is module
    assert not torch.equal(module.weight, before)
    result.predict(x)
    with pytest.raises(InputError, match="not in the catalogue"):
        proselflc.load_run(tmp_path / "run").predict(x)


def test_a_map_style_data_set_and_texts() -> None:
    x, given, _ = blobs(60)
    pairs = [(torch.from_numpy(row), int(label)) for row, label in zip(x, given, strict=True)]
    assert proselflc.fit(pairs, steps=2).examples.num_rows == 60
    texts = ["good fine nice", "bad awful poor"] * 20
    result = proselflc.fit(texts, ["plus", "minus"] * 20, epochs=8, batch_size=8)
    assert result.predict(["a nice fine thing", "poor and awful"]).labels == ["plus", "minus"]


def test_a_factory_is_called_again_only_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_models.py").write_text(
        "import torch\ndef small(num_classes, shape):\n"
        "    return torch.nn.Linear(shape.width, num_classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    x, given, _ = blobs()
    out = tmp_path / "run"
    result = proselflc.fit(x, given, model="my_models:small", steps=2, out=out)
    expected = result.predict(x).probabilities
    with pytest.raises(InputError, match="my_models:small"):
        proselflc.load_run(out).predict(x)
    again = proselflc.load_run(out, model="my_models:small")
    np.testing.assert_array_equal(again.predict(x).probabilities, expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parameters": {"sharpnes": 8}}, 'did you mean parameters["sharpness"]? It takes'),
        ({"method": "cce", "parameters": {"epsilon": 0.2}}, 'no parameters["epsilon"]'),
        ({"epochs": 0}, "at least 1"),
        ({"lr": float("nan")}, "positive number"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], words: str) -> None:
    x, given, _ = blobs()
    with pytest.raises(InputError) as caught:
        proselflc.fit(x, given, **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "--" not in str(caught.value)


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run"):
        proselflc.load_run(tmp_path / "none")
    with pytest.raises(InputError, match=r"no config\.toml"):
        proselflc.load_run(tmp_path)
    (tmp_path / "config.toml").write_text('fingerprint = "0"\n[versions]\n')
    with pytest.raises(InputError, match="not finished"):
        proselflc.load_run(tmp_path)


def test_torch_is_left_as_it_was() -> None:
    x, given, _ = blobs()
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    proselflc.fit(x, given, steps=2, deterministic=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_sample_is_measured_against_its_own_truth() -> None:
    """With the labels of 10 examples wrong, all in the sample, the sample is wrong throughout."""
    x, _, clean = blobs(100)
    given = clean.copy()
    sampled = np.linspace(0, 99, 10).astype(np.int64)
    given[sampled] = (given[sampled] + 1) % 3
    result = proselflc.fit(x, given, clean=clean, steps=1, eval_examples=10)
    assert result.history[-1]["correct_fitting"] is None
    assert result.history[-1]["wrong_fitting"] is not None


class Masked(nn.Linear):
    """A layer with a buffer of −∞, as attention masks are."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))


def test_the_model_that_comes_back_is_the_one_that_was_measured(tmp_path: Path) -> None:
    """Also where an average of the weights was, and where the run was finished before."""
    x, given, clean = blobs()
    out = tmp_path / "run"
    options = {"clean": clean, "x_test": x, "y_test": clean, "steps": 12, "ema": 0.9, "out": out}
    first = proselflc.fit(x, given, model=Masked(), **options)  # type: ignore[arg-type]
    assert list((out / "checkpoints").iterdir())
    accuracy = (first.predict(x).classes == clean).mean()
    assert accuracy == pytest.approx(first.summary["test_accuracy"])
    again = proselflc.fit(x, given, model=Masked(), resume=True, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.predict(x).probabilities, first.predict(x).probabilities)
    assert first.config["data"] == "given in Python"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epochs": "2"}, "epochs= must be a whole number, got '2'"),
        ({"lr": "x"}, "lr= must be a positive number, got 'x'"),
        ({"seed": 2**63}, "below 2^63"),
        ({"parameters": [0.2]}, 'parameters= must be a mapping such as {"epsilon": 0.2}, got list'),
        ({"method": proselflc.CrossEntropy()}, "method= must be a name"),
        ({"model": nn.Linear(4, 3)}, "torch.nn.modules.linear.Linear"),
        ({"model": nn.Linear(3, 2)}, "[2, 2]"),
    ],
)
def test_what_only_python_can_get_wrong(arguments: dict[str, object], words: str) -> None:
    x, given, _ = blobs()
    with pytest.raises(InputError) as caught:
        proselflc.fit(x, given, **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_prediction_about_nan_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match="NaN or infinite features"):
        run.predict(np.full((2, 3), np.nan))


def test_pieces_of_a_batch_are_large_enough_for_batch_normalisation() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(256, size=(19, 8, 8), dtype=np.uint8)
    proselflc.fit(x, np.arange(19) % 2, model="convnet", batch_size=16, accumulate=10, epochs=1)


def test_a_net_that_has_learned_everything_by_heart_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no second opinion; with one, what it has learned does not matter."""
    x, _, clean = blobs()
    run = proselflc.fit(x, clean, epochs=30, batch_size=16)
    assert [one.code for one in run.audit.warnings] == []
    monkeypatch.setattr(witness, "LARGEST", 10)
    capsys.readouterr()
    run = proselflc.fit(x, clean, epochs=30, batch_size=16)
    said = capsys.readouterr().err
    assert [one.code for one in run.audit.warnings] == ["memorised", "no_witness"]
    assert run.audit.suspects == 0
    for one in run.audit.warnings:
        assert f"note: {one.message}" in said
    assert "in the first half of training" in said
    assert "epochs=" in said
    assert "folds=4" in said
    assert "--" not in said


def test_weights_of_a_dataset_reach_the_loss() -> None:
    """A label that weighs nothing is as good as any other."""
    x, given, _ = blobs()
    ids = tuple(map(str, range(len(x))))
    none, weight = np.arange(len(x)) < 10, np.ones(len(x), np.float32)
    weight[none] = 0

    def learned(labels: Ints, weight: Floats | None) -> Floats:
        part = Part(Features(x), labels, ids)
        dataset = Dataset("mine", part, ("a", "b", "c"), sample_weight=weight)
        return proselflc.fit(dataset, epochs=2).predict(x).probabilities

    other = np.where(none, (given + 1) % 3, given)
    np.testing.assert_array_equal(learned(given, weight), learned(other, weight))
    assert np.abs(learned(given, None) - learned(other, None)).max() > 0.001


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(29, dtype=np.float32), r"\(29,\) for 30 training examples"),
        (np.full(30, -1.0, dtype=np.float32), "negative or not a number"),
        (np.full(30, np.nan, dtype=np.float32), "negative or not a number"),
        (np.zeros(30, dtype=np.float32), "all 0: nothing would be learned"),
    ],
)
def test_weights_that_make_no_sense_are_one_sentence(weight: Floats, words: str) -> None:
    x, given, _ = blobs(30)
    part = Part(Features(x), given, tuple(map(str, range(30))))
    with pytest.raises(ValueError, match=words):
        proselflc.fit(Dataset("mine", part, ("a", "b", "c"), sample_weight=weight), epochs=1)


class Stopping(nn.Linear):
    """Somebody presses Ctrl-C while it learns from a batch, the third one unless said."""

    left = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return super().forward(x)


def test_a_stop_advises_only_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x, given, _ = blobs(60)
    with pytest.raises(KeyboardInterrupt) as stopped:
        proselflc.fit(x, given, model=Stopping(3, 3), epochs=2, batch_size=20)
    assert str(stopped.value) == (
        "stopped after step 2 of 6, and nothing of it is kept: proselflc.fit(…, out=…) keeps a "
        "run that can be resumed"
    )
    del stopped
    gc.collect()
    assert list(tmp_path.iterdir()) == []

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match=r"resume with: fit\(…, out='.*/run', resume"):
        proselflc.fit(x, given, model=Stopping(3, 3), epochs=2, batch_size=20, out=out)
    model = Stopping(3, 3)
    model.left = -1
    run = proselflc.fit(x, given, model=model, epochs=2, batch_size=20, out=out, resume=True)
    assert run.summary["steps"] == 6


def test_a_run_goes_on_with_its_own_weights_alone(tmp_path: Path) -> None:
    x, given, _ = blobs(60)
    part = Part(Features(x), given, tuple(map(str, range(60))))

    def learn(weight: Floats | None, left: int = -1, resume: bool = True) -> Run:
        model, dataset = Stopping(3, 3), Dataset("mine", part, ("a", "b", "c"))
        model.left = left
        return proselflc.fit(
            replace(dataset, sample_weight=weight),
            model=model,
            epochs=2,
            batch_size=20,
            out=tmp_path / "run",
            resume=resume,
        )

    weight = np.linspace(0, 1, 60, dtype=np.float32)
    with pytest.raises(KeyboardInterrupt):
        learn(weight, left=3, resume=False)
    for other in (None, 2 * weight):
        with pytest.raises(ValueError, match="the sample weights are not those that"):
            learn(other)
    assert learn(weight).summary["steps"] == 6


def test_errors_name_parameters_and_not_options(tmp_path: Path) -> None:
    x, given, _ = blobs(30)
    out = tmp_path / "--out" / "run"
    proselflc.fit(x, given, epochs=1, out=out)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"epochs": 1, "steps": 1}, "epochs= and steps="),
        ({"batch_size": 0}, "^batch_size= must be at least 1, got 0"),
        ({"resume": True}, "^resume= needs out=, "),
        ({"out": out}, r"/--out/run holds .* overwrite=True to replace it, or another out=$"),
        ({"lr": 1e30}, r"a lower lr=.* warmup=.* clip=1.* overwrite=True"),
    ]
    for options, words in wrong:
        with pytest.raises((InputError, DivergenceError), match=words) as caught:
            proselflc.fit(x, given, **options)
        assert " --" not in str(caught.value)


def test_a_model_goes_on_with_the_preprocessing_that_it_has_learned_with() -> None:
    x, given, _ = blobs()
    first = proselflc.fit(x, given, epochs=5)
    other = x * 3 + 1  # whose own means and deviations are others
    still = proselflc.fit(
        other, given, model=first.model, preprocessing=first.preprocessing, lr=1e-12, steps=1
    )
    assert still.preprocessing == first.preprocessing
    assert proselflc.fit(other, given, steps=1).preprocessing != first.preprocessing
    np.testing.assert_allclose(
        still.predict(x).probabilities, first.predict(x).probabilities, atol=1e-6
    )
    with pytest.raises(InputError, match=r"preprocessing= must be .* got dict"):
        proselflc.fit(x, given, preprocessing={})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="3"):
        proselflc.fit(x[:, :2], given, preprocessing=first.preprocessing)


def test_nothing_is_changed_where_wrong_labels_are_rarer_than_mistakes() -> None:
    """Clean labels of overlapping clusters: both models are sure and wrong in the same places."""
    x, y = make_classification(
        2000, 12, n_informative=6, n_classes=3, n_clusters_per_class=3, class_sep=0.8, flip_y=0,
        random_state=100,
    )  # fmt: skip
    audit = proselflc.fit(x.astype(np.float32), y, seed=100, notes=False).audit
    assert audit.suspects > 0
    assert (audit.changes, audit.noise_low, audit.expected_precision) == (0, 0.0, None)
    assert "rare_errors" in {warning.code for warning in audit.warnings}


@pytest.mark.parametrize("model", ["mlp", "boosting"])
@pytest.mark.parametrize("n", [150, 800])
def test_nothing_is_changed_where_the_outcome_is_partly_chance(model: str, n: int) -> None:
    """Even the surest predictions differ from right labels then, as from wrong ones."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(n, 5))
    y = generator.random(n) < 1 / (1 + np.exp(-1.5 * x[:, 0] - x[:, 1]))
    frame = pa.table({name: x[:, k] for k, name in enumerate("abcde")})
    audit = proselflc.fit(frame, y, model=model, seed=100, notes=False).audit
    assert audit.changes == 0
    assert audit.expected_precision is None
