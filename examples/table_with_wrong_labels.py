"""A table of numbers, some of whose labels are wrong, and the same table corrected.

Writes scikit-learn's breast cancer data as a CSV file with every seventh label exchanged, trains
on it and writes the file again with the labels that the run suggests: two commands. Then counts how
many labels are right before and after.

    python examples/table_with_wrong_labels.py [FOLDER]
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_breast_cancer

EVERY = 7  # so many labels, one is wrong


def make_table(path: Path) -> list[str]:
    """Write the table; the labels as they should be."""
    data = load_breast_cancer()
    right = [str(data.target_names[k]) for k in data.target]
    other = {"benign": "malignant", "malignant": "benign"}
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["patient", *data.feature_names, "diagnosis"])
        for k, (numbers, label) in enumerate(zip(data.data, right, strict=True)):
            given = other[label] if k % EVERY == EVERY - 1 else label
            table.writerow([f"P{k:03d}", *numbers, given])
    return right


def read_labels(path: Path) -> list[str]:
    """The labels of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return [row["diagnosis"] for row in csv.DictReader(file)]


def proselflc(*words: object) -> None:
    """`proselflc …`, as on the command line."""
    subprocess.run([sys.executable, "-m", "proselflc", *map(str, words)], check=True)


def main(folder: Path) -> None:
    table, run, corrected = folder / "patients.csv", folder / "run", folder / "corrected.csv"
    right = make_table(table)
    columns = ("--label-column", "diagnosis", "--id-column", "patient")
    proselflc("train", "--data", table, *columns, "--out", run, "--quiet")
    proselflc("export", run, "--copy", corrected)

    for words, labels in (("before", read_labels(table)), ("after", read_labels(corrected))):
        share = sum(a == b for a, b in zip(labels, right, strict=True)) / len(right)
        print(f"labels right {words:6}  {share:.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="proselflc-")))
