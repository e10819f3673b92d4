"""News titles in Hausa from a TSV file, a quarter of whose topics are wrong.

The titles are made up here from a few words of each topic and some that belong to none. A network
that adds up a vector per word learns them on a CPU in seconds; `ProSelfLC` keeps it from learning
the wrong topics by heart, and the run says which those are.

    python examples/text_from_tsv.py [FOLDER]
"""

import csv
import random
import sys
import tempfile
from pathlib import Path

import proselflc
from proselflc.data.opening import open_data
from proselflc.data.request import Request

TOPICS = {
    "kasuwanci": ("kasuwa", "farashi", "kuɗi", "banki", "ciniki", "haraji", "kamfani"),
    "lafiya": ("asibiti", "magani", "cuta", "likita", "rigakafi", "lafiya", "jinya"),
    "siyasa": ("zaɓe", "gwamna", "majalisa", "jam'iyya", "ƙuri'a", "shugaba", "minista"),
    "wasanni": ("ƙwallo", "wasa", "gasa", "koci", "filin", "kofi", "ɗan wasa"),
}
ANY = ("a", "da", "na", "ta", "ya", "suka", "sabon", "jihar", "Najeriya", "Kano", "yau", "shekara")
WRONG = 0.25


def make_tsv(path: Path, size: int = 800) -> list[str]:
    """Write the file; the topics as they should be."""
    chance = random.Random(0)
    names = sorted(TOPICS)
    right = [chance.choice(names) for _ in range(size)]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["news_title", "label"])
        for topic in right:
            words = [*chance.choices(TOPICS[topic], k=3), *chance.choices(ANY, k=5)]
            chance.shuffle(words)
            others = [name for name in names if name != topic]
            given = chance.choice(others) if chance.random() < WRONG else topic
            table.writerow([" ".join(words), given])
    return right


def main(folder: Path) -> None:
    right = make_tsv(folder / "titles.tsv")
    data = open_data(Request(data=str(folder / "titles.tsv"), text_column="news_title"))
    run = proselflc.fit(data, epochs=20, out=folder / "run")

    given = run.examples["given_label"].to_pylist()
    after = proselflc.corrected_labels(run)
    print(f"the run thinks that {run.audit.estimated_noise_rate:.0%} of the topics are wrong")
    for words, labels in (("before", given), ("after", after)):
        share = sum(a == b for a, b in zip(labels, right, strict=True)) / len(right)
        print(f"topics right {words:6}  {share:.1%}")
    print("asked about a new title:", run.predict(["sabon likita a asibiti na Kano"]).labels[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="proselflc-")))
