"""What the tests of pages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tomli_w

from proselflc.analysis.audit import Audit, counted
from proselflc.analysis.suspects import write_parquet
from proselflc.training.observations import NO_CLASS, ROW
from proselflc.training.run_directory import RunDirectory

Fabricate = Callable[..., Path]


@pytest.fixture
def fabricate(tmp_path: Path) -> Fabricate:
    """Writes the files of a run that nobody has trained; every second example is a suspect."""

    def make(
        name: str = "run",
        *,
        n: int = 12,
        names: Sequence[str] = ("cat", "dog", "fox"),
        ids: Sequence[str] | None = None,
        suspects: int | None = None,
        epochs: int = 4,
        points: int = 4,
        truth: bool = True,
        test: bool = True,
        audited: bool = True,
        config: dict[str, Any] | None = None,
        summary: dict[str, Any] | None = None,
        history: dict[str, Any] | None = None,
    ) -> Path:
        path = tmp_path / name
        path.mkdir()
        directory = RunDirectory(path)
        C, marked = len(names), n // 2 if suspects is None else suspects
        given = np.arange(n) % C
        is_suspect = np.arange(n) < marked
        suggested = np.where(is_suspect, (given + 1) % C, given)
        column = pa.array(names, pa.string())
        quality = np.where(is_suspect, 0.1, 0.9).astype(np.float32)
        flat = {
            "index": pa.array(np.arange(n)),
            "id": pa.array([f"id-{k}" for k in range(n)] if ids is None else ids, pa.string()),
            "given_label": column.take(pa.array(given)),
            "suggested_label": column.take(pa.array(suggested)),
            "is_suspect": pa.array(is_suspect),
            "quality": pa.array(quality),
            "trust": pa.array(quality),
            "entropy": pa.array(quality),
            "p_given": pa.array(quality),
            "p_suggested": pa.array(np.full(n, 0.8, np.float32)),
            "first_learned_epoch": pa.array(np.zeros(n, np.int32)),
            "flips": pa.array(np.zeros(n, np.int32)),
            "corrected_distribution": pa.array([[0.5]] * n, pa.list_(pa.float32())),
        }
        if truth:
            flat["clean_label"] = column.take(pa.array(suggested))
        write_parquet(pa.table(flat), directory.examples)
        for epoch in range(epochs):
            directory.dynamics.mkdir(exist_ok=True)
            rows = np.zeros(n, ROW)
            rows["p_given"] = np.linspace(0, 1, n) * (epoch + 1) / epochs
            rows["p_other"] = 1 - rows["p_given"]
            rows["predicted"] = NO_CLASS
            with (directory.dynamics / f"epoch-{epoch:05d}.npy").open("wb") as file:
                np.lib.format.write_array(file, rows)
        if audited:
            Audit(
                num_examples=n,
                suspects=marked,
                folds=None,
                estimated_noise_rate=marked / n,
                realised_noise_rate=marked / n if truth else None,
                expected_precision=0.88 if marked else None,
                names=tuple(names),
                joint=counted(suggested, given, C),
                realised=counted(suggested, given, C) if truth else None,
            ).save(directory)
        table = {"fingerprint": "f" * 64, "data": "/nowhere/pets.csv", "epochs": epochs}
        table |= {"method": {"name": "proselflc"}, "seed": 7, **(config or {})}
        with directory.config.open("wb") as file:
            tomli_w.dump({**table, "versions": {"proselflc": "0.1.0"}}, file)
        known = 0.5 if truth else None
        line = {
            "train_accuracy": 0.8,
            "test_accuracy": 0.7 if test else None,
            "g": 0.5,
            "epsilon": 0.3,
            "entropy": 0.4,
            **dict.fromkeys(("correct_fitting", "wrong_fitting", "semantic_correction"), known),
            **dict.fromkeys(("entropy_clean", "entropy_noisy"), known),
            **(history or {}),
        }
        directory.write_history(
            [
                {"step": k + 1, "epoch": k + 1, "progress": (k + 1) / points, **line}
                for k in range(points)
            ]
        )
        bins = {
            "edges": [0, 0.5, 1],
            "counts": [10, 30],
            "confidence": [0.4, 0.9],
            "accuracy": [0.5, 0.8],
        }
        rows_of_table = [
            {"T": T, "reading": how, "measure": what, "ece": 0.123}
            for how in ("divide", "multiply")
            for T in (1.0, 0.25, 0.125)
            for what in ("max_p", "entropy")
        ]
        measured = {"n": 40, "accuracy": 0.7, "per_class": [0.5] * C, "reliability": bins}
        directory.write_json(
            directory.evaluation,
            {"test": {**measured, "calibration": rows_of_table}} if test else {},
        )
        directory.write_json(
            directory.summary,
            {
                "method": "proselflc",
                "data": "pets",
                "noise": "pairflip:0.4",
                "test_accuracy": 0.7 if test else None,
                "ece": 0.1 if test else None,
                "label_accuracy_before": 0.5 if truth else None,
                "label_accuracy_after": 1.0 if truth else None,
                "wrong_fitting": known,
                "realised_noise_rate": marked / n if truth else None,
                "detection": {"auroc": 0.9, "precision": 1.0} if truth else None,
                "seconds": 2.0,
                "fingerprint": "f" * 64,
                **(summary or {}),
            },
        )
        return path

    return make
