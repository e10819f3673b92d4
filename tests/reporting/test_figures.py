"""Figures show the numbers they were given, whatever these are called, and fit on a page."""

from __future__ import annotations

import base64
import io
import itertools
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proselflc.auditing.audit import Audit
from proselflc.auditing.evaluation import reliability
from proselflc.errors import InputError
from proselflc.pages import drawing
from proselflc.pages.drawing import Figure, run_style
from proselflc.pages.learning_dynamics import dynamics
from proselflc.pages.svg import learning_curve
from proselflc.reporting import figures
from proselflc.reporting.transitions import transitions
from proselflc.training.run_directory import Json

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"
LARGEST = 40_000  # bytes of a figure

HOSTILE = (
    "<script>alert(1)</script>",
    "$x$ $\\alpha",
    "]]> & \"quoted\" 'too'",
    "a\nb\tc\x00\x1b[31m",
    "\u202eevil\u200f",
    "y" * 10_000,
    "_hidden",
    "日本語",
    "#0072b2 var(--ink,#ffffff) url(#a)",
    "\ufffe\udc80",
    "",
)

PAPER = [
    "correct_fitting",
    "wrong_fitting",
    "semantic_correction",
    "entropy_clean",
    "entropy_noisy",
    "generalisation",
]


def history(points: int, **columns: Sequence[object]) -> list[Json]:
    """Lines with an epoch each and something in every column, unless it is said."""
    known = {
        name: [0.5] * points
        for name in (
            *("train_accuracy", "test_accuracy", "g", "entropy", "epsilon", "correct_fitting"),
            *("wrong_fitting", "semantic_correction", "entropy_clean", "entropy_noisy"),
            *("epsilon_clean", "epsilon_noisy"),
        )
    }
    columns = {"val_accuracy": [None] * points, **known, **columns}
    return [
        {"epoch": k + 1, **{name: column[k] for name, column in columns.items()}}
        for k in range(points)
    ]


def without_truth(lines: list[Json]) -> list[Json]:
    hidden = ("correct", "wrong", "semantic", "entropy_", "epsilon_")
    return [{n: None if n.startswith(hidden) else v for n, v in one.items()} for one in lines]


def named(found: Sequence[Figure]) -> dict[str, Figure]:
    names = {one.name: one for one in found}
    assert len(names) == len(found)
    return names


def drawn(figure: Figure) -> ET.Element:
    assert len(figure.svg.encode()) <= LARGEST, figure.name
    return ET.fromstring(figure.svg)


def texts(figure: Figure) -> list[str]:
    return [one.text or "" for one in drawn(figure).iter(f"{SVG}text")]


def paths(figure: Figure, line: int) -> list[list[tuple[float, float]]]:
    """The pieces of what is drawn in a line colour, in points; level lines, as in a legend, not."""
    found = []
    for parent in drawn(figure).iter():
        for path in parent:
            stroke = path.get("stroke", parent.get("stroke", ""))
            if path.tag != f"{SVG}path" or not stroke.startswith(f"var(--line-{line},"):
                continue
            pieces = [
                [float(number) for number in re.findall(r"-?[\d.]+", piece)]
                for piece in path.attrib["d"].split("M")[1:]
            ]
            pairs = [list(zip(p[::2], p[1::2], strict=True)) for p in pieces]
            if pairs and not (len(pairs) == 1 and {y for _, y in pairs[0]} == {pairs[0][0][1]}):
                found += pairs
    return found


def audit(
    counts: npt.NDArray[np.float64], *, known: bool = True, names: Sequence[str] = ()
) -> Audit:
    C = len(counts)
    noise = float(1 - counts.trace() / counts.sum())
    return Audit(
        num_examples=int(counts.sum()),
        suspects=1,
        folds=None,
        estimated_noise_rate=noise,
        realised_noise_rate=noise if known else None,
        expected_precision=0.5,
        names=tuple(names) or tuple(f"class {k}" for k in range(C)),
        joint=counts,
        realised=counts if known else None,
    )


def flowing(C: int, seed: int = 0) -> npt.NDArray[np.float64]:
    """Counts with noise everywhere."""
    generator = np.random.default_rng(seed)
    counts = generator.random((C, C)) * 10
    counts[np.arange(C), np.arange(C)] += 60
    return counts


def examples(
    quality: Sequence[float | None], suspect: Sequence[bool], wrong: Sequence[bool] | None
) -> pa.Table:
    n = len(quality)
    columns = {
        "quality": pa.array(quality, pa.float32()),
        "is_suspect": pa.array(suspect),
        "given_label": pa.array(["a"] * n),
    }
    if wrong is not None:
        columns["clean_label"] = pa.array(["b" if one else "a" for one in wrong])
    return pa.table(columns)


def evaluation(confidence: Sequence[float], right: Sequence[bool]) -> tuple[Json, float]:
    """What `evaluation.json` holds, and the error that the library computes of the examples."""
    bins = reliability(torch.tensor(confidence, dtype=torch.float64), torch.tensor(right))
    return {
        "reliability": {
            "edges": list(bins.edges),
            "counts": list(bins.counts),
            "confidence": list(bins.confidence),
            "accuracy": list(bins.accuracy),
        }
    }, bins.ece


@cache
def every() -> list[Figure]:
    """One of each kind."""
    one, _ = evaluation([0.25, 0.75, 0.95], [False, True, True])
    score = figures.quality(examples([0.1, 0.9], [True, False], [True, False]))
    diagram = figures.reliability({"a": one, "b": one})
    assert score is not None
    assert diagram is not None
    large = transitions(audit(flowing(30)))
    return [
        *dynamics({"a": history(4, val_accuracy=[0.1, 0.2, 0.3, 0.4]), "b": history(3)}),
        *transitions(audit(flowing(3))),
        *(drawing.figure(f"many-{one.name}", one.drawing, one.alt) for one in large),
        score,
        diagram,
    ]


def test_one_run_has_the_papers_six_panels_and_the_trust() -> None:
    found = dynamics({"a": history(3)})
    assert [one.name for one in found] == [*PAPER, "trust"]


def test_stages_begin_where_a_thin_line_and_a_name_say_so() -> None:
    runs = {"a": history(10)}
    later: list[Json] = [{"name": "weights from scratch", "first_epoch": 6}]
    plain, marked = dynamics(runs), dynamics(runs, later)
    assert [one.name for one in plain] == [one.name for one in marked]
    for before, after in zip(plain, marked, strict=True):
        assert "weights from scratch →" in texts(after)
        assert "weights from scratch →" not in texts(before)
        assert after.alt == f"{before.alt} From epoch 6 on: weights from scratch."
    early = dynamics(runs, [{"name": "student", "first_epoch": 2}] * 3)
    assert all(texts(one).count("student") == 1 for one in early)


@pytest.mark.parametrize(
    "stage",
    [
        *({}, {"name": "x"}, {"first_epoch": 3.5, "name": None}, {"first_epoch": -1, "name": "x"}),
        *({"first_epoch": 10**400, "name": "x"}, {"first_epoch": 99, "name": "x"}),
        {"first_epoch": 2, "name": "<script>\x00" * 99},
    ],
)
def test_stages_of_a_stranger_do_no_harm(stage: Json) -> None:
    found = dynamics({"a": history(4)}, [stage])
    assert len(found) == 7
    for one in found:
        drawn(one)
        assert "<script" not in one.svg


def test_runs_that_are_compared_have_the_trust_of_the_subsets_apart() -> None:
    found = dynamics({"a": history(3), "b": history(5)})
    assert [one.name for one in found] == [*PAPER, "trust", "trust_subsets"]


def test_panels_that_need_the_truth_are_absent_without_it() -> None:
    found = dynamics({"a": without_truth(history(3))})
    assert [one.name for one in found] == ["generalisation", "agreement", "entropy", "trust"]
    both = dynamics({"a": without_truth(history(3)), "b": history(3)})
    assert [one.name for one in both] == [
        *PAPER,
        "agreement",
        "entropy",
        "trust",
        "trust_subsets",
    ]
    assert "At the end: b 50.0%." in named(both)["wrong_fitting"].alt
    assert "At the end: a 50.0%, b 50.0%." in named(both)["agreement"].alt


def test_a_panel_without_numbers_is_absent() -> None:
    lines = history(2, wrong_fitting=[None, None], semantic_correction=[None, None])
    names = named(dynamics({"a": lines}))
    assert "wrong_fitting" not in names
    assert "semantic_correction" not in names
    assert "correct_fitting" in names
    assert dynamics({"a": []}) == []
    assert dynamics({}) == []


def test_a_line_goes_through_its_numbers() -> None:
    lines = history(5, wrong_fitting=[0.0, 0.25, 1.0, 0.5, 0.125])
    figure = named(dynamics({"a": lines}))["wrong_fitting"]
    ((one,),) = [paths(figure, 1)]
    x, y = np.array(one).T
    np.testing.assert_allclose(np.diff(x), (260 - 36 - 10) / 5, atol=0.11)
    bottom = y[0]
    np.testing.assert_allclose((bottom - y) / 122, [0, 0.25, 1, 0.5, 0.125], atol=0.002)
    assert "a · 12.5%" in texts(figure)
    assert "over 5 epochs" in figure.alt
    assert "a 12.5%" in figure.alt


def test_what_is_not_known_is_a_gap_and_a_point_alone_is_marked() -> None:
    lines = history(6, wrong_fitting=[0.1, 0.2, None, 0.4, None, 0.6])
    figure = named(dynamics({"a": lines}))["wrong_fitting"]
    pieces = paths(figure, 1)
    assert [len(piece) for piece in pieces if len(piece) > 1] == [2]
    alone = [u for u in drawn(figure).iter(f"{SVG}use") if XLINK in u.attrib]
    places = {round((float(u.attrib["x"]) - 36) / (214 / 6), 1) for u in alone if "x" in u.attrib}
    assert {4.0, 6.0} <= places


def test_validation_is_dashed_and_only_where_there_is_one() -> None:
    figure = named(dynamics({"a": history(3, val_accuracy=[0.1, 0.2, 0.3])}))
    assert "validation" in texts(figure["generalisation"])
    assert any(one.get("stroke-dasharray") for one in drawn(figure["generalisation"]).iter())
    plain = named(dynamics({"a": history(3)}))["generalisation"]
    assert "validation" not in texts(plain)
    assert not any(one.get("stroke-dasharray") for one in drawn(plain).iter())


def test_equal_growth_is_drawn_once_in_ink() -> None:
    g = [0.1, 0.5, 0.9]
    same = named(dynamics({"a": history(3, g=g), "b": history(3, g=g)}))["trust"]
    other = named(dynamics({"a": history(3, g=g), "b": history(3, g=g[::-1])}))["trust"]
    assert len(paths(same, 1)) == 0  # ε of 0.5 is a level line
    assert len(paths(other, 1)) == len(paths(other, 2)) == 1
    assert "g(t)" in texts(same)


@pytest.mark.parametrize(
    "value", ["0.5", True, math.nan, math.inf, 10**400, -0.2, 7.0, [1], {"a": 1}, 1e300]
)
def test_what_is_no_such_number_is_a_gap(value: object) -> None:
    lines = history(3, wrong_fitting=[0.1, value, 0.3], epsilon=[value] * 3)
    names = named(dynamics({"a": lines, "b": [{"epoch": value, "test_accuracy": value}]}))
    assert "a · 30.0%" in texts(names["wrong_fitting"])
    assert [len(piece) for piece in paths(names["wrong_fitting"], 1)] == [1, 1]
    assert "trust" not in names


def test_many_points_become_means_and_the_last_one_stays() -> None:
    n = 1000
    noisy = [0.5 + 0.1 * (-1) ** k for k in range(n - 1)] + [0.9]
    figure = named(dynamics({"a": history(n, wrong_fitting=noisy)}))["wrong_fitting"]
    (one,) = paths(figure, 1)
    assert len(one) <= 80
    y = np.array(one)[:, 1]
    assert np.ptp(y[:-2]) < 0.02 * 122
    assert y[0] - y[-1] == pytest.approx(0.4 * 122, abs=0.02 * 122)
    assert "epoch; means of neighbouring points" in texts(figure)


def test_six_long_runs_fit_on_a_page() -> None:
    generator = np.random.default_rng(0)

    def noise() -> list[object]:
        return list(generator.random(1000))

    columns = [name for name in history(1)[0] if name != "epoch"]
    runs = {f"run {k}": history(1000, **{name: noise() for name in columns}) for k in range(6)}
    found = dynamics(runs)
    assert len(found) == 8
    for one in found:
        drawn(one)
        assert sum(text.startswith("run ") for text in texts(one)) == 6


def test_a_page_full_of_runs_can_be_told_apart() -> None:
    previews = {(s.colour, s.dash, s.marker) for s in map(run_style, range(24))}
    assert len(previews) == 24
    for facts in zip(
        *((s.colour, s.dash, s.marker) for s in map(run_style, range(6))), strict=True
    ):
        assert len(set(facts)) == 6
    generator = np.random.default_rng(0)
    accuracy = [list(generator.random(100)) for _ in range(24)]
    runs = {
        f"run {k}": history(100, test_accuracy=one, val_accuracy=one)
        for k, one in enumerate(accuracy)
    }
    generalisation = named(dynamics(runs))["generalisation"]
    drawn(generalisation)
    assert "18 more" in generalisation.alt


def test_figures_share_a_page_with_a_strict_policy() -> None:
    ids: list[str] = []
    for figure in every():
        root = drawn(figure)
        assert root.tag == f"{SVG}svg"
        assert root.attrib["role"] == "img"
        assert "viewBox" in root.attrib
        assert [one.text for one in (root[0], root[1])] == [figure.title, figure.alt]
        assert root.attrib["aria-labelledby"] == f"{root[0].attrib['id']} {root[1].attrib['id']}"
        own = [one.attrib["id"] for one in root.iter() if "id" in one.attrib]
        assert all(one.startswith(f"{figure.name}-") for one in own)
        ids += own
        for one in root.iter():
            assert one.tag.removeprefix(SVG) not in ("style", "script", "foreignObject", "a")
            for key, value in one.attrib.items():
                assert key != "style"
                assert not key.startswith("on")
                for found in re.findall(r"url\(#([^)]*)\)", value):
                    assert found in own
                if key == XLINK:
                    assert value.removeprefix("#") in own or value.startswith(
                        "data:image/png;base64,"
                    )
                if key in ("fill", "stroke"):
                    assert re.fullmatch(
                        r"none|var\(--(ink|muted|paper|line-[1-6]),#[0-9a-f]{6}\)", value
                    )
            assert "font-family" not in one.attrib
    assert len(set(ids)) == len(ids)


def test_letters_can_be_read_on_a_phone() -> None:
    for figure in every():
        root = drawn(figure)
        scale = 340 / float(root.attrib["viewBox"].split()[2])
        sizes = [one.attrib["font-size"] for one in root.iter() if "font-size" in one.attrib]
        assert sizes
        assert all(float(size.removesuffix("px")) * scale >= 9 for size in sizes)


def test_names_of_strangers_are_only_text() -> None:
    runs = {name: history(3) for name in HOSTILE}
    for figure in [
        *dynamics(runs),
        *transitions(audit(flowing(11), names=HOSTILE)),
    ]:
        root = drawn(figure)
        assert not list(root.iter(f"{SVG}script"))
        assert all(len(one) < 60 for one in texts(figure))
        said = " ".join(texts(figure))
        assert "\u202e" not in said
        assert "$x$ $\\alpha" in said
        assert "_hidden" in said
        assert "…" in said
    (wrong,) = [one for one in dynamics(runs) if one.name == "wrong_fitting"]
    assert "<script>alert(1)</script> · 50.0%" in texts(wrong)
    assert "#0072b2 var(--ink,#ffffff) url(#a) · 50.0%"[:15] in " ".join(texts(wrong))
    assert "<script>" not in wrong.svg


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40))
def test_any_name_can_be_drawn(name: str) -> None:
    one, _ = evaluation([0.95], [True])
    figure = figures.reliability({name: one})
    assert figure is not None
    drawn(figure)
    assert any(text.endswith("· ECE 5.0%") for text in texts(figure))


def test_the_same_figure_is_the_same_bytes_whatever_the_user_has_set(tmp_path: Path) -> None:
    first = every()
    drawing.write(first[:1], tmp_path / "a")
    with matplotlib.rc_context({"svg.fonttype": "path", "lines.linewidth": 9, "font.size": 30}):
        before = dict(matplotlib.rcParams)
        second = every.__wrapped__()
        drawing.write(second[:1], tmp_path / "b")
        assert dict(matplotlib.rcParams) == before
    assert [one.svg for one in first] == [one.svg for one in second]
    for suffix in (".svg", ".png"):
        a, b = (tmp_path / folder / f"correct_fitting{suffix}" for folder in "ab")
        assert a.read_bytes() == b.read_bytes()


def test_reliability_says_the_error_of_every_run() -> None:
    generator = np.random.default_rng(1)
    runs: dict[str, Json] = {}
    errors = {}
    for run in ("a", "b"):
        confidence = generator.random(200)
        runs[run], errors[run] = evaluation(list(confidence), list(generator.random(200) < 0.5))
    figure = figures.reliability(runs)
    assert figure is not None
    for run, error in errors.items():
        assert f"{run} · ECE {error:.1%}" in texts(figure)
        assert f"{run} {error:.1%}" in figure.alt


def test_reliability_puts_bins_where_they_belong() -> None:
    one, _ = evaluation([0.2, 0.2, 0.6, 0.6, 1.0], [True, False, True, True, False])
    figure = figures.reliability({"a": one})
    assert figure is not None
    line = max(paths(figure, 1), key=len)
    x, y = np.array(line).T
    np.testing.assert_allclose(np.diff(x), 0.4 * (260 - 36 - 16), atol=0.11)
    np.testing.assert_allclose(np.diff(-y) / 164, [0.5, -1.0], atol=0.002)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"reliability": None},
        {"reliability": []},
        {"reliability": {"confidence": [0.5], "accuracy": [0.5]}},
        {"reliability": {"confidence": [0.5], "accuracy": [0.5, 1], "counts": [1]}},
        {"reliability": {"confidence": ["x"], "accuracy": [2], "counts": [1]}},
        {"reliability": {"confidence": [None], "accuracy": [None], "counts": [0]}},
    ],
)
def test_reliability_is_absent_without_bins(value: Json) -> None:
    assert figures.reliability({"a": value}) is None


def test_a_small_matrix_has_names_and_numbers() -> None:
    counts = np.array([[60.0, 40.0, 0.0], [0.0, 97.0, 3.0], [0.0, 0.0, 50.0]])
    estimated, realised = transitions(audit(counts, names=["cat", "dog", "eel"]))
    for figure in (estimated, realised):
        said = texts(figure)
        assert said.count("cat") == said.count("dog") == said.count("eel") == 2
        assert sorted(one for one in said if one.isdigit()) == ["100", "3", "40", "60", "97"]
        assert "17.2% of the labels are wrong" in figure.alt
        assert "40.0% of cat labelled dog" in figure.alt
    assert (estimated.name, realised.name) == ("transition_estimated", "transition_realised")


def test_the_realised_matrix_is_absent_where_it_is_not_known() -> None:
    (only,) = transitions(audit(flowing(4), known=False))
    assert only.name == "transition_estimated"


def test_the_matrix_that_the_method_used_stands_beside_the_others() -> None:
    counts = np.array([[60.0, 40.0, 0.0], [0.0, 97.0, 3.0], [0.0, 0.0, 50.0]])
    used = np.array([[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    *_, figure = transitions(audit(counts, names=["cat", "dog", "eel"]), used)
    assert figure.name == "transition_used"
    assert figure.title == "Given labels by true class, used by the method"
    assert sorted(one for one in texts(figure) if one.isdigit()) == ["100", "100", "20", "80"]
    assert "used by the method, 3 classes: 8.0% of the labels are wrong" in figure.alt
    assert len(transitions(audit(counts), np.eye(7))) == 2  # of other classes


def test_labels_that_are_all_right_are_said_to_be() -> None:
    (only,) = transitions(audit(np.diag([3.0, 4.0]), known=False))
    assert only.alt.endswith("2 classes: no label is wrong.")


@pytest.mark.parametrize("C", [1, 2, 15])
def test_numbers_in_cells_are_the_transition(C: int) -> None:
    one = audit(flowing(C))
    figure = transitions(one)[0]
    expected = sorted(f"{100 * p:.0f}" for p in one.transition.flat if p >= 0.005)
    assert sorted(text for text in texts(figure) if text.isdigit()) == expected


def picture(figure: Figure) -> npt.NDArray[np.float64]:
    """The opacities of the cells."""
    (image,) = drawn(figure).iter(f"{SVG}image")
    content = base64.b64decode(image.attrib[XLINK].partition(",")[2])
    with Image.open(io.BytesIO(content)) as opened:
        return np.asarray(opened)[..., 3] / 255


def test_a_matrix_of_many_classes_is_a_picture_of_the_transition() -> None:
    one = audit(flowing(100))
    estimated, _, confusions = transitions(one)
    np.testing.assert_allclose(picture(estimated), np.sqrt(one.transition), atol=1 / 15)
    mask = next(iter(drawn(estimated).iter(f"{SVG}mask"))).attrib["id"]
    (painted,) = [r for r in drawn(estimated).iter(f"{SVG}rect") if "mask" in r.attrib]
    assert painted.attrib["mask"] == f"url(#{mask})"
    assert painted.attrib["fill"].startswith("var(--line-1,")
    assert float(painted.attrib["width"]) == pytest.approx(260 - 36 - 10, abs=0.5)
    wrong = one.joint - np.diag(np.diag(one.joint))
    order = np.argsort(-wrong, axis=None)[:8]
    expected = [f"class {k // 100} → class {k % 100}" for k in order]
    assert [text for text in texts(confusions) if text.startswith("class")] == expected
    assert f"{expected[0]} {wrong.max():.0f}" in confusions.alt


def test_a_thousand_classes_are_taken_together() -> None:
    counts = np.eye(1000) * 6
    counts[np.arange(1000), (np.arange(1000) + 7) % 1000] = 4
    estimated, realised, confusions = transitions(audit(counts))
    cells = picture(estimated)
    assert cells.shape == (143, 143)  # of seven classes each, and six in the last
    np.testing.assert_allclose(cells[np.arange(140), np.arange(140)], math.sqrt(0.6), atol=1 / 15)
    np.testing.assert_allclose(
        cells[np.arange(140), np.arange(1, 141)], math.sqrt(0.4), atol=1 / 15
    )
    assert np.count_nonzero(cells) < 3 * 143
    assert "7 neighbouring classes" in estimated.alt
    assert any("7 of 1000 classes per cell" in text for text in texts(estimated))
    for one in (realised, confusions):
        drawn(one)


@pytest.mark.parametrize("C", [25, 26, 150, 151])
def test_no_matrix_is_too_large(C: int) -> None:
    generator = np.random.default_rng(0)
    counts = generator.random((C, C)) ** 3 * 100
    for figure in transitions(audit(counts)):
        drawn(figure)


def bars(figure: Figure, line: int) -> list[float]:
    """Heights of the bars of a colour, from left to right."""
    found = []
    for parent in drawn(figure).iter():
        for path in parent:
            fill = path.get("fill", parent.get("fill", ""))
            if (
                path.tag == f"{SVG}path"
                and fill.startswith(f"var(--line-{line},")
                and "id" not in path.attrib
            ):
                numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.attrib["d"])]
                found.append((min(numbers[::2]), max(numbers[1::2]) - min(numbers[1::2])))
    return [height for _, height in sorted(found)]


def test_quality_counts_right_and_wrong_labels() -> None:
    generator = np.random.default_rng(0)
    quality = generator.random(500).astype(np.float32)
    wrong = generator.random(500) < 0.3
    suspect = quality < 0.4
    figure = figures.quality(examples(list(quality), list(suspect), list(wrong)))
    assert figure is not None
    for line, chosen in ((1, ~wrong), (2, wrong)):
        heights = np.array(bars(figure, line))
        counts, _ = np.histogram(quality[chosen], 20, (0, 1))
        assert len(heights) == 20
        np.testing.assert_allclose(heights / heights.sum(), counts / counts.sum(), atol=0.004)
    found = int((wrong & suspect).sum())
    assert f"suspects · {suspect.sum()}" in texts(figure)
    assert f"wrong labels · {wrong.sum()}" in texts(figure)
    assert f"{wrong.sum()} are wrong, and {found} of these are suspect" in figure.alt


def test_quality_without_truth_says_nothing_of_wrong_labels() -> None:
    figure = figures.quality(examples([0.1, 0.9, None], [True, False, False], None))
    assert figure is not None
    assert not any("wrong" in text for text in texts(figure))
    assert bars(figure, 2) == [] or max(bars(figure, 2)) == 0
    assert "quality of 2 labels, 1 of them suspect" in figure.alt


def test_quality_that_is_not_known_is_not_drawn() -> None:
    assert figures.quality(examples([None, None], [False, False], None)) is None
    assert figures.quality(examples([], [], None)) is None


def test_files_stand_alone(tmp_path: Path) -> None:
    found = every()
    written = drawing.write(found, tmp_path / "new" / "figures")
    assert [path.name for path in written] == [
        f"{one.name}{suffix}" for one in found for suffix in (".svg", ".png")
    ]
    assert sorted(tmp_path.rglob("*.*")) == sorted(written)
    for one, vector, raster in zip(found, written[::2], written[1::2], strict=True):
        root = ET.fromstring(vector.read_bytes())
        assert b"var(" not in vector.read_bytes()
        assert "font-family" in root.attrib
        shown = [text.text for text in root.iter(f"{SVG}text")]
        assert shown.count(one.title) == texts(one).count(one.title) + 1
        width, height = (float(v) for v in root.attrib["viewBox"].split()[2:])
        with Image.open(raster) as opened:
            assert opened.size[0] == pytest.approx(width * 200 / 72, abs=1)
            assert opened.size[1] == pytest.approx(height * 200 / 72, abs=1)
            pixels = np.asarray(opened.convert("RGBA"))
        assert pixels[0, 0].tolist() == [255, 255, 255, 255]
        assert pixels[..., 3].min() == 255
        assert pixels[..., 0].min() < 50  # ink


def test_a_folder_that_cannot_be_made_is_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        drawing.write(every()[:1], tmp_path / "file")


def decoded(path: str) -> list[list[tuple[int, int]]]:
    """The points of a small curve."""
    pieces = []
    for piece in path.split("M")[1:]:
        if piece.endswith("h0"):
            x, y = map(int, piece[:-2].split())
            pieces.append([(x, y)])
            continue
        start, _, rest = piece.partition("l")
        x, y = map(int, start.split())
        steps = [int(one) for one in re.findall(r"-?\d+", rest)]
        moves = zip(steps[::2], steps[1::2], strict=True)
        points = itertools.accumulate(
            moves, lambda a, b: (a[0] + b[0], a[1] + b[1]), initial=(x, y)
        )
        pieces.append(list(points))
    return pieces


def curves(svg: str) -> Mapping[str, list[list[tuple[int, int]]]]:
    assert len(svg.encode()) <= 600
    root = ET.fromstring(svg)
    return {
        one.attrib["class"]: decoded(one.attrib["d"]) for one in root if one.get("class") != "frame"
    }


def test_a_learning_curve_shows_both_probabilities() -> None:
    p = [0.0, 0.5, 1.0, 0.2]
    svg = learning_curve(p, np.array([1.0, 0.5, 0.0, 0.8], np.float16))
    found = curves(svg)
    assert found["given"] == [[(0, 30), (30, 15), (60, 0), (90, 24)]]
    assert found["other"] == [[(0, 0), (30, 15), (60, 30), (90, 6)]]
    label = ET.fromstring(svg).attrib["aria-label"]
    assert label == "p of the given label 0.00 → 0.20, of another class 1.00 → 0.80"


def test_a_learning_curve_has_gaps() -> None:
    nan = math.nan
    found = curves(learning_curve([nan, 0.5, 0.5, nan, 0.5], [nan] * 5))
    assert [len(piece) for piece in found["given"]] == [2, 1]
    assert found["other"] == []
    assert "of another class not seen" in learning_curve([0.5], [nan])
    assert curves(learning_curve([], [])) == {"given": [], "other": []}


def test_a_long_learning_curve_is_averaged() -> None:
    p = np.repeat(np.linspace(0, 1, 28), 10) + np.tile([0.02, -0.02], 140)
    (piece,) = curves(learning_curve(p, 1 - p))["given"]
    np.testing.assert_allclose([1 - y / 30 for _, y in piece], np.linspace(0, 1, 28), atol=0.03)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=120))
def test_no_learning_curve_is_too_large(p: list[float]) -> None:
    found = curves(learning_curve(p, [1 - one for one in p]))
    points = [point for piece in found["given"] for point in piece]
    assert all(0 <= x <= 90 and 0 <= y <= 30 for x, y in points)
    assert bool(points) == any(not math.isnan(one) for one in p)


def test_the_first_figure_of_all_is_drawn_quietly_and_without_a_window(tmp_path: Path) -> None:
    program = """
import sys
from proselflc.pages.learning_dynamics import dynamics
assert "matplotlib" not in sys.modules
print(len(dynamics({"日本": [{"epoch": 1, "test_accuracy": 0.5}]})))
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
