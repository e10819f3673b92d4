"""The page: one file, bounded, obeying nobody's names, whole or without what is not known."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.auditing.caveats import AuditWarning
from proselflc.data.inputs import Features, Images, Texts
from proselflc.errors import InputError
from proselflc.pages import html_page
from proselflc.reporting import command as report
from proselflc.reporting import figures
from proselflc.reporting.run_facts import read_runs

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style></script><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "‮gnorw\x00\x1b[31m\ud800",
)


class Page(HTMLParser):
    """What a browser would make of a page: its tags, their attributes and its text."""

    VOID = ("meta", "link", "img", "input", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures have tests of their own, and take their time."""
    for name in ("dynamics", "transitions"):
        monkeypatch.setattr(figures, name, lambda *_: [])
    for name in ("reliability", "quality"):
        monkeypatch.setattr(figures, name, lambda *_: None)


def page(*paths: Path, **options: object) -> Page:
    return Page(report.make(read_runs(paths), **options).html)  # type: ignore[arg-type]


def check_safe(found: Page) -> None:
    """Nothing runs, loads or leads anywhere but what the page itself is made of."""
    count = Counter(tag for tag, _ in found.tags)
    assert (count["script"], count["style"], count["form"]) == (1, 1, 1 if count["input"] else 0)
    assert not count.keys() & {"iframe", "object", "embed", "base", "foreignobject", "audio"}
    for tag, attributes in found.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style"
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                assert value is not None
                assert value.startswith(("#", "data:image/", "data:,")), (tag, value)
            if value is not None and "url(" in value:
                assert re.fullmatch(r"url\(#[\w-]+\)", value)


def test_the_page_is_whole_and_says_what_was_found(fabricate: Callable[..., Path]) -> None:
    found = page(fabricate())
    check_safe(found)
    for words in (
        "ProSelfLC on pets",
        "test accuracy is 70.0%.",
        "6 labels are suspect: 6 can be changed without a person",
        "Learning dynamics",
        "Expected calibration error",
        "Confused classes",
        "Suspects by suggested label",
        "Showing 6 of 6",
        "Configuration",
        "config.toml --out",
        "proselflc export",
        "The examples themselves are not shown.",
    ):
        assert words in found.words
    assert found.html.startswith("<!doctype html>")
    assert found.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert len([svg for svg in found.all("svg") if svg.get("class") == "curve"]) == 6


@pytest.mark.usefixtures("without_figures")
def test_the_policy_allows_what_is_inside_and_nothing_else(fabricate: Callable[..., Path]) -> None:
    html = page(fabricate()).html
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    rules = dict(rule.split(" ", 1) for rule in policy.replace("&#39;", "'").split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag in ("style", "script"):
        (source,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"


def test_a_page_of_the_same_run_is_the_same(fabricate: Callable[..., Path]) -> None:
    path = fabricate()
    assert page(path).html == page(path).html


def test_without_truth_test_set_or_audit_their_parts_are_absent(
    fabricate: Callable[..., Path],
) -> None:
    path = fabricate(truth=False, test=False, audited=False, epochs=0)
    found = page(path)
    check_safe(found)
    for words in ("in truth", "are wrong", "look wrong", "Reliability", "calibration", "AUROC"):
        assert words not in found.words
    assert "true class (row)" not in found.words
    assert f"proselflc audit {path}" in found.words
    assert "There are no learning curves" in found.words
    assert "Panels that need true labels are omitted" in found.words


@pytest.mark.usefixtures("without_figures")
def test_without_suspects_there_is_no_gallery(fabricate: Callable[..., Path]) -> None:
    found = page(fabricate(suspects=0))
    assert "There are no suspects." in found.words
    assert "Showing" not in found.words
    assert found.all("form") == []


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("examples.parquet", b"PAR1 no table PAR1"),
        ("audit.json", b"["),
        ("audit.npz", b""),
        ("history.jsonl", b"nothing"),
        ("evaluation.json", b"[1]"),
        ("transition.npy", b"\x93NUMPY no array"),
        ("dynamics/epoch-00001.npy", b"\x93NUMPY no array"),
    ],
)
def test_a_damaged_file_costs_its_part_alone(
    fabricate: Callable[..., Path], file: str, content: bytes
) -> None:
    path = fabricate()
    (path / file).write_bytes(content)
    found = page(path)
    assert "Incomplete." in found.words
    assert file in found.words
    assert "ProSelfLC was trained on pets" in found.words


@pytest.mark.parametrize("matrix", [np.full((3, 3), 1.0), np.eye(3) * np.nan, np.float64(1)])
@pytest.mark.usefixtures("without_figures")
def test_a_transition_that_is_none_is_said(fabricate: Callable[..., Path], matrix: object) -> None:
    path = fabricate()
    np.save(path / "transition.npy", np.asarray(matrix))
    assert "transition.npy is damaged" in page(path).words


def test_the_transition_that_the_method_used_is_shown(fabricate: Callable[..., Path]) -> None:
    path = fabricate()
    np.save(path / "transition.npy", np.eye(3))
    names = [figure.name for figure in report.make(read_runs([path])).figures]
    wanted = ["transition_estimated", "transition_realised", "transition_used"]
    assert [name for name in names if name.startswith("transition")] == wanted
    assert "used by the method" in page(path).words
    assert "the transition matrix that the method used" in page(path).words


def test_every_file_but_two_may_be_gone(fabricate: Callable[..., Path]) -> None:
    path = fabricate(epochs=0)
    for file in path.iterdir():
        if file.name not in ("config.toml", "summary.json"):
            file.unlink()
    found = page(path)
    check_safe(found)
    assert "The labels were not audited." in found.words
    assert "Suspects" not in found.words.split("Configuration")[0].replace("Incomplete", "")


def test_names_of_strangers_are_just_names(fabricate: Callable[..., Path]) -> None:
    names = [*HOSTILE[:5], "tame"]
    path = fabricate(
        "<b>run'\"",
        n=24,
        suspects=24,
        names=names,
        ids=[f"{HOSTILE[k % 5]}/{k}" for k in range(24)],
        config={"data": HOSTILE[1], "label_column": HOSTILE[2], HOSTILE[0]: HOSTILE[1]},
        summary={"method": HOSTILE[0], "data": HOSTILE[1], "noise": HOSTILE[2]},
    )
    texts = Texts(tuple(HOSTILE[k % 6] for k in range(24)))
    found = page(path, inputs=texts)
    check_safe(found)
    for name in HOSTILE[:5]:
        assert name in "".join(found.text)
        assert any(name in (attributes.get("title") or "") for _, attributes in found.tags)
    assert r"\x00\x1b[31m\ud800" in found.words
    assert "49" not in found.words.replace(str(path.parent), "")  # a folder may be number 49
    table = Features(np.random.default_rng(0).normal(size=(24, 5)).astype("f4"), HOSTILE[:5])
    check_safe(page(path, inputs=table))
    check_safe(page(path, path, inputs=table))


@pytest.mark.usefixtures("without_figures")
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=5, unique=True))
def test_any_text_can_be_a_class(fabricate: Callable[..., Path], names: list[str]) -> None:
    fabricate.count = getattr(fabricate, "count", 0) + 1  # type: ignore[attr-defined]
    path = fabricate(f"run-{fabricate.count}", names=names)  # type: ignore[attr-defined]
    check_safe(page(path))


@pytest.mark.usefixtures("without_figures")
def test_pictures_texts_and_features_are_shown(fabricate: Callable[..., Path]) -> None:
    path = fabricate(n=12)
    pictures = page(path, inputs=Images(np.zeros((12, 8, 8, 1), np.uint8)))
    images = pictures.all("img")
    assert len(images) == 6
    assert {(one["class"], one["width"]) for one in images} == {("pixels", "96")}
    assert images[0]["alt"] == "Example id-0"
    assert "The examples themselves are not shown." not in pictures.words
    texts = page(path, inputs=Texts(tuple(f"text {k}\n  of it" for k in range(12))))
    assert "text 0 of it" in texts.words
    values = np.zeros((12, 2), np.float32)
    values[0] = 5, 1
    features = page(path, inputs=Features(values, ("weight", "height")))
    assert "weight 5 (1.25 ± 2.17)" in features.words


@pytest.mark.usefixtures("without_figures")
def test_inputs_that_are_too_few_are_an_error(fabricate: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="there are 1 inputs"):
        report.make(read_runs([fabricate()]), inputs=Texts(("one",)))


@pytest.mark.usefixtures("without_figures")
def test_several_runs_share_a_page(fabricate: Callable[..., Path]) -> None:
    one = fabricate("one")
    two = fabricate("two", suspects=3, config={"lr": 0.5}, summary={"method": "cce"})
    found = page(one, two)
    check_safe(found)
    assert "2 runs on pets" in found.words
    assert "Runs compared" in [attributes.get("aria-label") for _, attributes in found.tags]
    assert found.words.count("2 of 2 runs agree") == 3
    assert found.words.count("1 of 2 runs agree") == 3
    assert "Options that differ" in found.words
    assert "Not all runs were trained on the same labels" not in found.words
    other = fabricate("other", summary={"fingerprint": "another"})
    assert "runs agree" not in page(one, other).words
    assert "Not all runs were trained on the same labels" in page(one, other).words


@pytest.mark.usefixtures("without_figures")
def test_only_what_applies_is_said_of_the_runs(fabricate: Callable[..., Path]) -> None:
    bold, test = "column is bold", "The test set was only used"
    words = page(fabricate("one"), fabricate("two")).words
    assert bold in words
    assert test in words
    unknown = {"summary": {"ece": None}, "truth": False, "test": False}
    words = page(fabricate("three", **unknown), fabricate("four", **unknown)).words
    assert bold not in words
    assert test not in words
    known = {**unknown, "summary": {"ece": 0.1}}
    words = page(fabricate("five", **known), fabricate("six", **unknown)).words
    assert bold in words
    assert test not in words


@pytest.mark.usefixtures("without_figures")
def test_another_run_of_another_length_costs_the_agreement_alone(
    fabricate: Callable[..., Path],
) -> None:
    found = page(fabricate("one"), fabricate("two", n=14))
    assert "they cannot be compared" in found.words
    assert "runs agree" not in found.words


@pytest.mark.usefixtures("without_figures")
def test_what_was_memorised_is_said(fabricate: Callable[..., Path]) -> None:
    warning = AuditWarning("memorised", "the model fitted <b>99.5%</b> of the labels; try less")
    words = page(fabricate(suspects=2, warnings=[warning])).words
    assert "Careful. The model fitted <b>99.5%</b> of the labels; try less." in words


@pytest.mark.usefixtures("without_figures")
def test_what_the_method_has_noted_stands_at_the_top(fabricate: Callable[..., Path]) -> None:
    noted = {"notes": ["class <b>cat</b> is never predicted, so it keeps its label"]}
    one = fabricate("one", suspects=2, summary=noted)
    alone = page(one)
    assert "Careful. Class <b>cat</b> is never predicted, so it keeps its label." in alone.words
    assert alone.words.index("Careful.") < alone.words.index("Test accuracy")
    assert (
        "Careful. one: Class <b>cat</b> is never" in page(one, fabricate("two", suspects=2)).words
    )


ONSET = {
    "epoch": 3,
    "latest": 5,
    "guess_loss": 1.0986,
    "fall": 0.4986,
    "recent_fall": -0.1,
    "held_out_losses": [0.9, 0.6, 0.7],
    "surest": 10,
    "contradicted": 2,
}


def test_when_the_method_began_to_trust_is_said_and_drawn(fabricate: Callable[..., Path]) -> None:
    one = fabricate("one", suspects=2, summary={"onset": ONSET})
    alone = page(one)
    check_safe(alone)
    assert "trust its own predictions after epoch 3, when it had stopped learning" in alone.words
    assert "At the end, 2 of its 10 surest predictions contradicted the label" in alone.words
    assert "until the method began to trust the network's predictions: one after epoch 3." in (
        alone.words
    )
    assert "trust begins" in alone.words
    late = {**ONSET, "epoch": None, "fall": 0.0, "surest": 0}
    short = {**late, "latest": 0, "held_out_losses": []}
    several = page(
        one,
        fabricate("two", summary={"onset": late}),
        fabricate("three"),
        fabricate("four", summary={"onset": short}),
    )
    assert "four: It never trusted its own predictions" in several.words
    assert "one: It began to trust its own predictions after epoch 3" in several.words
    assert "two: It never trusted its own predictions" in several.words
    assert "surest predictions" not in several.words
    assert "one after epoch 3, two never." in several.words
    plain = page(fabricate("plain"))
    assert "Loss on held-out labels" not in plain.words


@pytest.mark.usefixtures("without_figures")
def test_data_from_python_is_not_asked_for_on_the_command_line(
    fabricate: Callable[..., Path],
) -> None:
    words = page(fabricate(config={"data": "given in Python"})).words
    assert "call proselflc.fit(…) again" in words


def test_however_large_the_run_the_page_is_small(fabricate: Callable[..., Path]) -> None:
    names = [f"{k} " + "<&\"'>" * 400 for k in range(1200)]
    path = fabricate(
        n=2400,
        suspects=2000,
        names=names,
        ids=[f"{k}/" + "'é" * 500 for k in range(2400)],
        epochs=300,
        points=3000,
        config={f"key{k}": '"' * 5000 for k in range(300)},
        summary={"data": "'" * 10_000, "noise": "n" * 10_000},
    )
    noise = np.random.default_rng(0).integers(0, 256, (2400, 32, 32, 3), np.uint8)
    made = report.make(read_runs([path]), inputs=Images(noise))
    assert made.shown == 300
    assert len(made.html.encode()) < 5_000_000
    found = Page(made.html)
    check_safe(found)
    assert "Showing 300 of 300 on this page (2,000 suspects in total; " in found.words
    assert "the 1,000 of 1,200 classes with the most suspects." in found.words
    texts = report.make(read_runs([path]), inputs=Texts(('"<' * 500_000,) * 2400))
    assert len(texts.html.encode()) < 5_000_000


@pytest.mark.usefixtures("without_figures")
def test_a_page_of_ours_is_known_again(fabricate: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(fabricate()).html)
    assert html_page.is_own_page(path)
    path.write_text("<!doctype html><title>mine</title>")
    assert not html_page.is_own_page(path)
    assert not html_page.is_own_page(tmp_path)
    assert not html_page.is_own_page(tmp_path / "gone")


@pytest.mark.usefixtures("without_figures")
def test_json_of_any_shape_is_no_traceback(fabricate: Callable[..., Path]) -> None:
    path = fabricate(summary={"onset": ONSET})
    summary = json.loads((path / "summary.json").read_text())
    odd: object
    for odd in (None, {"a": []}, "text", -3, 10**400):
        for key in summary:
            (path / "summary.json").write_text(json.dumps({**summary, key: odd}))
            check_safe(page(path))
        (path / "summary.json").write_text(json.dumps(dict.fromkeys(summary, odd)))
        check_safe(page(path))
