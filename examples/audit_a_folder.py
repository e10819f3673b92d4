"""Which pictures lie in the wrong folder?

Makes a folder of small pictures of digits, a folder per class, and moves every eighth picture to
where it does not belong. Then trains on the folder as it is and asks which files are misplaced.

    python examples/audit_a_folder.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import proselflc
from proselflc.data.opening import open_data
from proselflc.data.request import Request

NAMES = ("zero", "one", "two", "three", "four")
EVERY = 8  # so many pictures, one is misplaced


def make_folder(folder: Path, size: int = 400) -> set[str]:
    """Write the pictures; the ids of those that lie in the wrong folder."""
    digits = load_digits(n_class=len(NAMES))
    misplaced = set()
    for name in NAMES:
        (folder / name).mkdir(parents=True)
    for k, (pixels, digit) in enumerate(zip(digits.images[:size], digits.target, strict=False)):
        wrong = k % EVERY == EVERY - 1
        name = NAMES[(digit + 1) % len(NAMES)] if wrong else NAMES[digit]
        grey = Image.fromarray((pixels * 15).astype(np.uint8))
        grey.resize((16, 16), Image.Resampling.BILINEAR).save(folder / name / f"{k:04d}.png")
        if wrong:
            misplaced.add(f"{name}/{k:04d}.png")
    return misplaced


def main(folder: Path) -> None:
    misplaced = make_folder(folder / "pictures")
    data = open_data(Request(data=str(folder / "pictures")))
    run = proselflc.fit(data, image_size=16, epochs=12, out=folder / "run")

    suspects = run.examples.filter(run.examples["is_suspect"]).sort_by("quality")
    found = set(suspects["id"].to_pylist())
    print(f"{len(misplaced)} of {len(run.examples)} pictures were moved to a wrong folder.")
    print(f"{len(found)} are suspects, {len(found & misplaced)} of them rightly. The worst:\n")
    for row in suspects.slice(0, 5).to_pylist():
        chance = f"{row['quality']:.0%} likely to be right"
        print(f"    {row['id']:16} belongs into {row['suggested_label']:6} ({chance})")
    page = proselflc.report(run, inputs=data.train.inputs)
    print(f"\nTo look at: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="proselflc-")))
