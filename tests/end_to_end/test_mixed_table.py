"""A raw table with categories, dates, texts and gaps: train, audit, export and predict."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from proselflc.cli.app import run
from proselflc.run.reader import load_run

N = 240


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Return a table of birds whose labels are partly wrong, and which of them are."""
    draw = np.random.default_rng(3)
    true = draw.integers(3, size=N)
    wrong = draw.random(N) < 0.15
    given = np.where(wrong, (true + 1) % 3, true)
    path = tmp_path_factory.mktemp("birds") / "birds.csv"
    islands = np.array(["Biscoe", "Dream", "Torgersen"])
    with path.open("w") as file:
        file.write("species,island,bill;mm,mass,sex,seen,note\n".replace(";", " "))
        for k in range(N):
            island = islands[true[k]] if draw.random() < 0.9 else islands[draw.integers(3)]
            bill = "NA" if k % 17 == 0 else f"{[38, 48, 43][true[k]] + draw.normal():.1f}"
            mass = "" if k % 19 == 0 else f"{[37, 41, 50][true[k]] * 100 + draw.normal() * 90:.0f}"
            sex = ("male", "female", "?")[k % 3]
            day = f"200{7 + k % 3}-11-{1 + k % 28:02}"
            name = ("Adelie", "Chinstrap", "Gentoo")[given[k]]
            file.write(f"{name},{island},{bill},{mass},{sex},{day},a note on bird {k} of the sea\n")
    return path, wrong


def test_from_a_raw_table_to_a_corrected_copy_and_predictions(
    birds: tuple[Path, np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, wrong = birds
    out = tmp_path / "run"
    assert run(["columns", str(data), "--label", "species", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kinds = {one["column"]: one["kind"] for one in found["columns"]}
    assert kinds == {
        "species": "label",
        "island": "category",
        "bill mm": "number",
        "mass": "number",
        "sex": "category",
        "seen": "date",
        "note": "text",
    }
    words = ["train", str(data), "--label", "species", "--out", str(out), "--model", "mlp"]
    assert run([*words, "--quiet"]) == 0
    assert "learning from 2 numbers (bill mm, mass)" in capsys.readouterr().err
    examples = load_run(out).examples
    suspects = examples["is_suspect"].to_numpy()
    assert suspects[wrong].mean() > 0.6
    assert suspects[~wrong].mean() < 0.1
    model = (out / "model.json").read_text()
    assert json.loads(model)["preprocessing"]["kind"] == "columns"

    assert run(["audit", str(out)]) == 0
    copy = tmp_path / "copy.csv"
    assert run(["export", str(out), "--copy", str(copy), "--suspects"]) == 0
    rows = list(csv.DictReader(copy.read_text().splitlines()))
    assert len(rows) == N
    assert rows[0]["bill mm"] == "NA"
    assert sum(row["species"] != row["label_before"] for row in rows) == suspects.sum()

    # The raw table without labels, with its columns in another order, a new island and new gaps.
    raw = tmp_path / "raw.csv"
    with raw.open("w") as file:
        file.write("note,seen,sex,mass,bill mm,island\n")
        for row in rows:
            island = "Atlantis" if row["island"] == "Dream" else row["island"]
            file.write(f"{row['note']},{row['seen']},,{row['mass']},{row['bill mm']},{island}\n")
    capsys.readouterr()
    assert run(["predict", str(out), str(raw)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id,predicted_label,confidence"
    predicted = np.array([line.split(",")[1] for line in lines[1:]])
    clean = np.array([row["label_before"] for row in rows])[~wrong]
    assert (predicted[~wrong] == clean).mean() > 0.8
    assert run(["predict", str(out), str(data)]) == 0
    again = [line.split(",")[1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(again) == N

    (tmp_path / "short.csv").write_text("note,seen\nx,2024-01-01\n")
    assert run(["predict", str(out), str(tmp_path / "short.csv")]) == 2
    assert 'lacks the columns "island", "bill mm", "mass" and "sex"' in capsys.readouterr().err


def test_data_frames_are_taken_as_they_come(birds: tuple[Path, np.ndarray]) -> None:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    from proselflc import fit

    frame = pd.read_csv(birds[0])
    y = frame.pop("species")
    frame["island"] = frame["island"].astype("category")
    result = fit(frame, y, epochs=3, model="mlp", notes=False)
    labels = result.predict(frame.head(7)).labels
    assert len(labels) == 7
    assert set(labels) <= set(y)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    other = fit(table, list(y), epochs=3, model="mlp", notes=False)
    assert list(other.predict(table.slice(0, 7)).labels) == list(labels)
