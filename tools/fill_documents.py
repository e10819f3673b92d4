"""Fill generated parts into the documents: the table of methods and measured numbers.

Each document has pairs of marks, `<!-- methods -->` … `<!-- /methods -->`; what is between them is
made here, from the methods and from benchmarks/results/.

    python tools/fill_documents.py
"""

import functools
import json
import statistics
from collections.abc import Callable
from pathlib import Path

from proselflc.methods import every

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PRINTED = ROOT / "docs" / "printed"  # what programs printed, by `make docs`
MADE_BY_SPHINX = ROOT / "docs" / "reference"
DOCUMENTS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if MADE_BY_SPHINX not in path.parents),
]


def methods() -> str:
    """Return the table of methods."""
    rows = [
        "| method | criterion | target q̃ | trust ε | loss | low entropy | class taught | paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, method in every().items():
        target = method.default_target()
        if target is None:  # outside the algebra; ỹ are labels that are replaced on the way
            taught, trusted = ("q", "0") if method.semantic_class == "annotated" else ("ỹ", "–")
        else:
            taught = target.formula
            trusted = "0" if target.reference is None else target.trust.symbol
        rows.append(
            f"| {method.title} (`{name}`) | `{method.criterion}` | {taught} | {trusted} "
            f"| {method.loss} | {method.entropy} | {method.semantic_class} | {method.where} |"
        )
    return "\n".join(rows)


def own_loop() -> str:
    """Return the output of examples/own_loop.py."""
    return _indented((PRINTED / "own_loop.txt").read_text(encoding="utf-8"))


def demo() -> str:
    """Return the table that `proselflc demo` printed."""
    text = (PRINTED / "demo.txt").read_text(encoding="utf-8")
    return _indented(text.partition("\n\nThe run")[0])


def throughput() -> str:
    """Return the speed of the whole loop relative to a bare one, from the benchmark."""
    lines = _printed("throughput").splitlines()
    return "\n".join(line for line in lines if "wanted" not in line)


def many_classes() -> str:
    """Return memory and time of the commands on 200,000 examples of 20,000 classes."""
    return _printed("scaling_many_classes")


def _printed(name: str) -> str:
    """Return the output of a benchmark, which is a block of its Markdown file."""
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    return _indented(text.removeprefix("```text\n").removesuffix("```\n"))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.rstrip().splitlines())


def step_cost() -> str:
    """Return the cost of ProSelfLC by shape, from the benchmark."""
    measured = json.loads((RESULTS / "step_cost.json").read_text(encoding="utf-8"))
    rows = [
        "| batch × classes | × `F.cross_entropy` | × faster than plain | compiled: × compiled CE |",
        "|---|---|---|---|",
    ]
    for shape, costs in measured["found"]["costs"].items():
        eager, compiled = costs["eager"]["ProSelfLC"], costs["compiled"]["ProSelfLC"]
        rows.append(
            f"| {shape} | {eager['times_cross_entropy']:.2f} "
            f"| {eager['times_faster_than_plain']:.1f} | {compiled['times_cross_entropy']:.2f} |"
        )
    return "\n".join(rows)


def detection() -> str:
    """Return the comparison of detection with cleanlab, from the benchmark."""
    return (RESULTS / "detection.md").read_text(encoding="utf-8").rstrip()


def outside_predictions() -> str:
    """Return the comparison with cleanlab by the same predictions, from the benchmark."""
    text = (RESULTS / "outside_predictions.md").read_text(encoding="utf-8")
    return text.partition("\n\nMeans by model")[0]


def estimator() -> str:
    """Return the comparison of the classifier with scikit-learn's, from the benchmark."""
    return (RESULTS / "estimator.md").read_text(encoding="utf-8").rstrip()


def detection_in_short() -> str:
    """Return the short comparison with cleanlab's defaults, from the benchmark."""
    found = json.loads((RESULTS / "detection.json").read_text(encoding="utf-8"))["found"]
    judges = ("the same network", "logistic regression", "random forest", "boosting")
    kinds = ("audit", *(f"cleanlab, {judge}" for judge in judges))
    rows = [
        "| labels | wrong | F1: ours | cleanlab, same network | logistic regression | forest "
        "| boosting | labels right: before | ours | cleanlab, same network |",
        "|" + "---|" * 10,
    ]
    for name, title in IN_SHORT.items():
        seeds = [rows for key, rows in found.items() if key.rpartition("-")[0] == name]
        if not all(kinds[0] in one for one in seeds) or not seeds:
            continue
        f1 = [_over_seeds([one[kind]["f1"] for one in seeds if kind in one]) for kind in kinds]
        truth = sum(one["audit"]["truth"] for one in seeds) / len(seeds)
        right = [
            _over_seeds([one[kind][measure] for one in seeds])
            for kind, measure in zip(kinds, ("right_by_change", "right_by_suspects"), strict=False)
        ]
        cells = [title, f"{truth:.0%}", *f1, f"{1 - truth:.2f}", *right]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


IN_SHORT = {
    "digits-symmetric-0.1": "digits, symmetric",
    "digits-pairflip-0.4": "digits, pairs",
    "breast-cancer-symmetric-0.1": "breast cancer (table), symmetric",
    "fashion-symmetric-0.1": "Fashion-MNIST, symmetric",
    "fashion-pairflip-0.4": "Fashion-MNIST, pairs",
    "cifar-symmetric-0.1": "CIFAR-100 subset, symmetric",
    "cifar-symmetric-0.4": "CIFAR-100 subset, symmetric",
    "cifar-human": "CIFAR-100N subset, by people",
    "hausa-symmetric-0.1": "Hausa titles, symmetric",
    "hausa-rules": "Hausa titles, by rules",
}


def _over_seeds(values: list[float | None]) -> str:
    """Return mean ± standard deviation, or a dash without values."""
    known = [value or 0.0 for value in values]
    if not known:
        return "–"
    spread = statistics.stdev(known) if len(known) > 1 else 0.0
    return f"{statistics.mean(known):.2f} ± {spread:.2f}"


def fuzz() -> str:
    """What became of damaged files, from the fuzzer."""
    measured = json.loads((RESULTS / "fuzz.json").read_text(encoding="utf-8"))
    if not measured["cases"]:
        return UNMEASURED
    groups = {name: measured["groups"].get(name, {}) for name in FUZZED}
    rows = [
        f"`make fuzz` (seed {measured['seed']}) damages {measured['files']} files in "
        f"{measured['cases']:,} cases:",
        "",
        f"| what a command did | {' | '.join(FUZZED.values())} |",
        "|---|" + "---|" * len(groups),
    ]
    for kind, words in OUTCOMES.items():
        counts = " | ".join(f"{counted.get(kind, 0):,}" for counted in groups.values())
        rows.append(f"| {words} | {counts} |")
    cases = " | ".join(f"{counted.get('cases', 0):,}" for counted in groups.values())
    return "\n".join([*rows, f"| cases | {cases} |"])


UNMEASURED = "The figures are not measured yet: `make fuzz` and then `make docs` fill them in."
FUZZED = {
    "checked": "files with a checksum",
    "run": "other files of runs",
    "data": "data, options and requests",
}
OUTCOMES = {
    "refused": "refused it in one sentence",
    "noted": "answered with a note about it",
    "correct": "answered as without the damage",
    "accepted": "used it as other data",
    "different": "**answered differently without a word**",
    "traceback": "**ended in a traceback**",
    "hang": "**did not end**",
    "escaped": "**wrote elsewhere or executed something**",
}
HOWTOS = ("image-folder", "table", "text", "photos-by-embeddings", "audit-and-review")  # first


def howtos() -> str:
    """Return the list of how-tos by their headings, those of a kind of data first."""
    folder = ROOT / "docs" / "howto"
    others = sorted(path.stem for path in folder.glob("*.md") if path.stem != "index")
    names = [*HOWTOS, *(name for name in others if name not in HOWTOS)]
    return _links([folder / f"{name}.md" for name in names], folder)


def decisions() -> str:
    """Return the list of decisions by their headings."""
    folder = ROOT / "docs" / "decisions"
    return _links(sorted(folder.glob("0*.md")), folder)


def _links(pages: list[Path], folder: Path) -> str:
    headings = (page.read_text(encoding="utf-8").partition("\n")[0].strip("# ") for page in pages)
    return "\n".join(
        f"- [{heading}]({page.relative_to(folder)})"
        for page, heading in zip(pages, headings, strict=True)
    )


def methods_on_digits() -> str:
    """Return the comparison of every method with cross entropy, from the benchmark."""
    return (RESULTS / "methods_on_digits.md").read_text(encoding="utf-8").rstrip()


def accuracy() -> str:
    """Return the results of every method on real images, from the benchmark."""
    return (RESULTS / "accuracy.md").read_text(encoding="utf-8").rstrip()


def when_it_helps() -> str:
    """Return the comparison of ProSelfLC with cross entropy for several training lengths."""
    text = (RESULTS / "when_it_helps.md").read_text(encoding="utf-8")
    return text.partition("\n\n")[2].rstrip()


def onset() -> str:
    """Return the summary of the benchmark of the onset: its first table, and where the rows are."""
    path = RESULTS / "onset.md"
    if not path.exists():
        return "The benchmark is not measured yet: `make docs` fills in its result."
    tables = [part for part in path.read_text(encoding="utf-8").split("\n\n") if part[0] == "|"]
    return f"{tables[0].rstrip()}\n\n[All rows](../benchmarks/results/{path.name})"


def paper(name: str) -> str:
    """Return a table or figure of the paper from the committed runs, without its title."""
    text = (RESULTS / "paper" / "cpu-wide" / f"{name}.md").read_text(encoding="utf-8")
    text = text.partition("\n\n")[2].rstrip()
    return text.replace("](figure", "](../benchmarks/results/paper/cpu-wide/figure")


PAPER = (
    *("table3", "table4", "table5", "table7"),
    *("figure2", "figure3", "figure4", "figure5"),
)
MADE: dict[str, Callable[[], str]] = {
    **{name: functools.partial(paper, name) for name in PAPER},
    "accuracy": accuracy,
    "decisions": decisions,
    "demo": demo,
    "detection": detection,
    "estimator": estimator,
    "outside_predictions": outside_predictions,
    "detection_in_short": detection_in_short,
    "fuzz": fuzz,
    "howtos": howtos,
    "methods": methods,
    "methods_on_digits": methods_on_digits,
    "onset": onset,
    "own_loop": own_loop,
    "step_cost": step_cost,
    "many_classes": many_classes,
    "throughput": throughput,
    "when_it_helps": when_it_helps,
}


def filled(text: str) -> str:
    """Return a document with the generated parts between its marks."""
    for name, make in MADE.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start in text:
            head, _, rest = text.partition(start)
            _, _, tail = rest.partition(end)
            text = f"{head}{start}\n{make()}\n{end}{tail}"
    return text


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
