"""Pack the records of runs into one file, which is what is committed.

A run is recorded in a file of its own while a reproduction is under way; this moves all of them
into `records.jsonl.xz` beside their folder. Readers look at both.

    python benchmarks/pack_records.py                       # those of the paper and the benchmarks
    python benchmarks/pack_records.py reproduction          # those of another --out
"""

import argparse
from pathlib import Path

from proselflc.paper.records import RecordStore

PAPER = Path(__file__).parent / "results" / "paper"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=PAPER, help="the --out of reproduce"
    )
    store = RecordStore(parser.parse_args().folder)
    print(f"{store.archive} has {store.pack()} records")


if __name__ == "__main__":
    main()
