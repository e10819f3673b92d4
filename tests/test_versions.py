"""One version, everywhere the same, and semantic."""

import re
from pathlib import Path

import proselflc

ROOT = Path(__file__).parents[1]
# As semver.org writes it, without what it allows after a + or a -.
SEMANTIC = r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)"


def test_changelog_and_package_agree() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings
    found = [re.fullmatch(rf"({SEMANTIC}) \((unreleased|\d{{4}}-\d\d-\d\d)\)", h) for h in headings]
    versions = [one[1] for one in found if one is not None]
    assert len(versions) == len(headings), "a heading is VERSION (DATE) or VERSION (unreleased)"
    assert versions[0] == proselflc.__version__
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)
    assert [one is not None and one[2] == "unreleased" for one in found[1:]] == [False] * (
        len(found) - 1
    )
