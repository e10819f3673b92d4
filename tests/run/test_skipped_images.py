"""`--on-bad-image skip` names the first files that it leaves out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proselflc.data.request import Request
from proselflc.run.config import Config
from proselflc.run.prepare import label_data


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (1, "1 example could not be read and is skipped: a/bad0.png (it is empty); "),
        (
            3,
            "3 examples could not be read and are skipped: a/bad0.png (it is empty), "
            "a/bad1.png (it is empty), a/bad2.png (it is empty); ",
        ),
        (5, "a/bad2.png (it is empty) and 2 more; "),
    ],
)
def test_up_to_three_files_are_named(bad: int, words: str, tmp_path: Path) -> None:
    for k in range(6):
        path = tmp_path / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8), 40 * k, np.uint8)).save(path)
    for k in range(bad):
        (tmp_path / "a" / f"bad{k}.png").touch()
    notes: list[str] = []
    label_data(Config(request=Request(str(tmp_path), on_bad_image="skip")), None, notes.append)
    [note] = [one for one in notes if "skipped" in one]
    assert words in note
    assert note.endswith("; the run's model.json lists them")
    assert note.count("bad") == min(bad, 3)
