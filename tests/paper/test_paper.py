"""The recipes and the printed Tables 6 and 7, against numbers that were copied from the paper.

The numbers here are the oracle: they were typed from the paper's LaTeX (arXiv 2005.03788, CVPR
2021), and nothing of them is computed by the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib
from PIL import Image

from proselflc import methods
from proselflc.data.dataset import Dataset, Part
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import ImageFiles
from proselflc.paper import printed, tables
from proselflc.paper.plan import SCALES, RunPlan
from proselflc.paper.records import RecordStore
from proselflc.run.config import Config, find
from proselflc.run.prepare import prepare
from proselflc.training.recipe import factor

# Section 5.1, "Datasets and training details" (2): "ResNet-50 … SGD with a start learning rate of
# 2e-3. A polynomial learning rate decay with a power of 2 is used. We set the momentum to 0.95 and
# the weight decay to 1e-4. … the batch size is 64. … the training ends at 500k iterations. … warped
# to 256×256, followed by a random crop of 224×224. This crop is randomly flipped."
IMAGENET = {
    "data": "imagenet",
    "model": "resnet50",
    "optimizer": "sgd",
    "lr": 2e-3,
    "momentum": 0.95,
    "weight_decay": 1e-4,
    "batch_size": 64,
    "steps": 500_000,
    "schedule": "poly",
    "augment": "crop-flip",
    "image_size": 224,
}
# Section 5.3, "Training details": "ResNet-50 … initialise it by a trained model on ImageNet. We
# follow Section 5.1 with small changes: the initial learning rate is 0.01 and we train 10k
# iterations."
CLOTHING1M = {**IMAGENET, "data": "clothing1m", "lr": 0.01, "steps": 10_000}

# Table 6, "Test accuracy (%) on the real-world noisy dataset Clothing 1M", from left to right.
TABLE_6 = (
    ("Boot-hard", "boot_hard", 68.9),
    ("Forward", "forward", 69.8),
    ("D2L", "d2l", 69.5),
    ("GCE", "gce", 69.8),
    ("SL", "sl", 71.0),
    ("S-adaptation", "s_adaptation", 70.3),
    ("Masking", "masking", 71.1),
    ("MD-DYR-SH", "md_dyr_sh", 71.0),
    ("Joint-soft", "joint_soft", 72.2),
    ("CCE", "cce", 71.8),
    ("LS", "label_smoothing", 72.6),
    ("CP", "confidence_penalty", 72.4),
    ("Boot-soft", "boot_soft", 72.3),
    ("ProSelfLC", "proselflc", 73.4),
)
# Table 7 (Appendix, "model calibration"), ECE (%, #bins = 10): a row for each confidence metric,
# T = 1, 1/4 and 1/8 from left to right, the result of CCE in brackets.
TABLE_7 = {
    "max_p": ("15.71 (40.98)", "4.24 (18.27)", "2.39 (9.94)"),
    "entropy": ("17.38 (42.83)", "5.22 (17.84)", "2.66 (9.53)"),
}


@pytest.mark.parametrize(("name", "said"), [("imagenet", IMAGENET), ("clothing1m", CLOTHING1M)])
def test_a_recipe_says_what_the_paper_says(name: str, said: dict[str, Any]) -> None:
    path = find(name)
    found = Config.from_table(tomllib.loads(path.read_text()), path).values()
    assert {key: found[key] for key in said} == said
    assert found["epochs"] is found["clip"] is found["ema"] is found["noise"] is None
    assert (found["warmup"], found["accumulate"], found["precision"]) == (0, 1, "no")
    reproduced = SCALES["paper"].config(name, "proselflc", {}, seed=0).values()
    assert {key: reproduced[key] for key in said} == said


def test_the_learning_rate_decays_with_the_power_of_2() -> None:
    """(1 − t/Γ)², by hand: at a half, at nine tenths, and at the last step of 10,000."""
    assert [factor("poly", t, 10_000) for t in (0, 5_000, 9_000, 9_999)] == pytest.approx(
        [1, 0.25, 0.01, 1e-8]
    )


def test_photos_are_warped_to_256_and_cropped_to_224(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    paths = []
    for k in range(4):
        paths.append(tmp_path / f"{k}.png")
        Image.fromarray(generator.integers(0, 256, (40, 60, 3), np.uint8)).save(paths[-1])
    train = Part(ImageFiles(tuple(paths)), np.array([0, 1, 0, 1]), tuple("abcd"))
    path = find("imagenet")
    table = {**tomllib.loads(path.read_text()), "model": "resnet18", "batch-size": 4, "workers": 0}
    setting = prepare(
        Config.from_table(table, path), Dataset("photos", train, ("x", "y")), report=print
    )
    assert isinstance(setting.preprocessing, ImageScaling)
    assert (setting.preprocessing.warp, setting.preprocessing.size) == ((256, 256), (224, 224))


def test_table_6_is_printed_as_in_the_paper(tmp_path: Path) -> None:
    assert list(printed.CLOTHING.items()) == [
        (methods.find(name).title, value) for _, name, value in TABLE_6
    ]
    plan = RunPlan(RecordStore(tmp_path), SCALES["paper"], (0,), assume_first=True)
    table = tables.table6(plan).tables[""]
    assert table.columns == ("method", "chosen", "test accuracy, %", "printed, %")
    assert [row[-1] for row in table.rows] == [f"{value:.1f}" for *_, value in TABLE_6]
    # "Our Trained Results" are the last five; the others the paper has from elsewhere.
    quoted = [row[0].endswith("¹") for row in table.rows]
    assert quoted == [True] * 9 + [False] * 5


def test_table_7_is_printed_as_in_the_paper(tmp_path: Path) -> None:
    plan = RunPlan(RecordStore(tmp_path), SCALES["paper"], (0,), assume_first=True)
    theirs = tables.table7(plan).tables["printed"]
    assert [row[1:] for row in theirs.rows] == list(TABLE_7.values())
    assert theirs.columns[1:] == ("T = 1", "T = 1/4", "T = 1/8")
    for measure, cells in TABLE_7.items():
        for T, cell in zip(("1", "1/4", "1/8"), cells, strict=True):
            ours, theirs_of_cce = printed.ECE[measure, T]
            assert f"{ours:.2f} ({theirs_of_cce:.2f})" == cell
