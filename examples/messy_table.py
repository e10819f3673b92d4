"""A real table as it comes, with some wrong labels, and the same table corrected.

`penguins.csv` is the raw table of the Palmer penguins (Gorman, Williams and Fraser 2014; Horst,
Hill and Gorman 2020, CC0): numbers, categories, dates, comments and missing cells. Every seventh
species is exchanged here; two commands then correct the table. Nothing is prepared by hand.

    python examples/messy_table.py [FOLDER]
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

RAW = Path(__file__).with_name("penguins.csv")
EVERY = 7  # every seventh label is wrong


def make_table(path: Path) -> list[str]:
    """Write the table with wrong labels; return the right ones."""
    with RAW.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    right = [row["Species"] for row in rows]
    species = sorted(set(right))
    for k, row in enumerate(rows):
        if k % EVERY == EVERY - 1:
            row["Species"] = species[(species.index(right[k]) + 1) % len(species)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return right


def read_labels(path: Path) -> list[str]:
    """Return the labels of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return [row["Species"] for row in csv.DictReader(file)]


def proselflc(*words: object) -> None:
    """Run `proselflc …`, as on the command line."""
    subprocess.run([sys.executable, "-m", "proselflc", *map(str, words)], check=True)


def main(folder: Path) -> None:
    table, run, corrected = folder / "penguins.csv", folder / "run", folder / "corrected.csv"
    right = make_table(table)
    proselflc("train", table, "--label", "Species", "--out", run, "--quiet")
    proselflc("export", run, "--copy", corrected)

    for words, labels in (("before", read_labels(table)), ("after", read_labels(corrected))):
        share = sum(a == b for a, b in zip(labels, right, strict=True)) / len(right)
        print(f"labels right {words:6}  {share:.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="proselflc-")))
