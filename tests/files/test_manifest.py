"""The checksums of a run: what is written, what is refused, and what a forger may not do."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.manifest import Checksum, Written


def sealed(folder: Path) -> Path:
    """A folder with three files and their manifest."""
    (folder / "dynamics").mkdir()
    paths = [folder / name for name in ("labels.npz", "audit.json", "dynamics/epoch-00000.npy")]
    for path in paths:
        path.write_bytes(path.name.encode())
    Written(folder).seal(paths)
    return folder


def test_size_and_digest_are_those_of_the_content(tmp_path: Path) -> None:
    content = os.urandom(3 * manifest._BLOCK + 7)
    (tmp_path / "x.npy").write_bytes(content)
    expected = Checksum(len(content), hashlib.sha256(content).hexdigest())
    assert manifest.checksum(tmp_path / "x.npy") == expected


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    files = {"labels.npz": Checksum(3, "a" * 64), "dynamics/recent_p.npy": None}
    manifest.write(tmp_path, files)
    assert manifest.read(tmp_path) == files
    text = (tmp_path / "manifest.json").read_text()
    assert json.loads(text)["files"]["labels.npz"] == {"size": 3, "sha256": "a" * 64}


def test_a_run_without_a_manifest_passes(tmp_path: Path) -> None:
    assert manifest.read(tmp_path) is None
    assert manifest.checked(tmp_path, tmp_path / "labels.npz") == tmp_path / "labels.npz"


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (b"labels.npX", "labels.npz", "labels.npz differs from what the run wrote (sha256 "),
        (b"", "labels.npz", "(0 bytes instead of 10): restore it from a copy, or train the run"),
        (b"x", "audit.json", "or write it again with proselflc audit "),
        (None, "labels.npz", "labels.npz is missing, though the run wrote it: restore it"),
        (b"x", "transition.npy", "was not written by the run, manifest.json does not list"),
    ],
)
def test_a_file_that_differs_is_named(
    tmp_path: Path, change: bytes | None, name: str, words: str
) -> None:
    path = sealed(tmp_path) / name
    assert manifest.checked(tmp_path, path) == path
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change)
    with pytest.raises(InputError) as raised:
        manifest.checked(tmp_path, path)
    assert str(raised.value).startswith(str(path))
    assert words in str(raised.value)


def test_the_digests_are_in_the_sentence(tmp_path: Path) -> None:
    path = sealed(tmp_path) / "labels.npz"
    path.write_bytes(b"labels.npX")
    found, expected = (
        hashlib.sha256(text).hexdigest()[:12] for text in (b"labels.npX", b"labels.npz")
    )
    with pytest.raises(InputError, match=f"sha256 {found}… instead of {expected}…"):
        manifest.checked(tmp_path, path)


def test_an_epoch_that_is_gone_is_named(tmp_path: Path) -> None:
    manifest.check_none_gone(sealed(tmp_path), "dynamics")
    (tmp_path / "dynamics" / "epoch-00000.npy").unlink()
    with pytest.raises(InputError, match=r"epoch-00000\.npy is missing"):
        manifest.check_none_gone(tmp_path, "dynamics")


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sealed(tmp_path) / "labels.npz"
    hashed: list[Path] = []
    original = manifest._hashed

    def remember(one: Path) -> Checksum:
        hashed.append(one)
        return original(one)

    monkeypatch.setattr(manifest, "_hashed", remember)
    monkeypatch.setattr(manifest, "_SETTLED", -1)
    for _ in range(3):
        manifest.checked(tmp_path, path)
    assert hashed == [path]
    status = path.stat()
    path.write_bytes(b"labels.npX")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the time of the old file
    with pytest.raises(InputError, match="differs"):
        manifest.checked(tmp_path, path)


def test_a_change_in_the_same_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    path = sealed(tmp_path) / "labels.npz"
    for k in range(50):
        path.write_bytes(b"labels.npz")
        manifest.checked(tmp_path, path)
        path.write_bytes(b"labels.np%d" % (k % 10))
        with pytest.raises(InputError, match="differs"):
            manifest.checked(tmp_path, path)


LISTED = {"size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is damaged"),
        ("[]", "expected `object`, got `array`"),
        ("{}", "missing required field `files`"),
        ('{"files": []}', "at `$.files`"),
        ("[" * 100_000, "is damaged"),
        ("\udcff", "is damaged"),
        (json.dumps({"files": {"../x.npz": LISTED}}), "matching regex"),
        (json.dumps({"files": {"/etc/passwd": LISTED}}), "matching regex"),
        (json.dumps({"files": {"folds/../../x.npz": LISTED}}), "matching regex"),
        (json.dumps({"files": {"labels.npz": 1}}), "expected `object | null`, got `int`"),
        (json.dumps({"files": {"labels.npz": {**LISTED, "size": "1"}}}), "expected `int`"),
        (json.dumps({"files": {"labels.npz": {**LISTED, "size": True}}}), "expected `int`"),
        (json.dumps({"files": {"labels.npz": {**LISTED, "sha256": "x"}}}), "matching regex"),
        (json.dumps({"files": {"labels.npz": {**LISTED, "more": 1}}}), "unknown field `more`"),
    ],
)
def test_a_hostile_manifest_is_one_sentence(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as raised:
        manifest.checked(tmp_path, tmp_path / "labels.npz")
    assert str(raised.value).startswith(f"{path} is damaged")
    assert words in str(raised.value)


def test_a_huge_manifest_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "manifest.json", "wb") as file:
        file.truncate(manifest._LARGEST + 1)
    with pytest.raises(InputError, match="larger than a manifest can be"):
        manifest.read(tmp_path)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(InputError, match=r"manifest\.json"):
        manifest.read(tmp_path)


def test_files_are_marked_while_they_are_replaced(tmp_path: Path) -> None:
    path = sealed(tmp_path) / "audit.json"
    with manifest.replacing(tmp_path, [path, tmp_path / "audit.npz"]):
        with pytest.raises(InputError, match=r"run proselflc audit .* again"):
            manifest.checked(tmp_path, path)
        assert manifest.checked(tmp_path, path, or_replaced=True) == path
        manifest.checked(tmp_path, tmp_path / "labels.npz")
        path.write_bytes(b"new")
        (tmp_path / "audit.npz").write_bytes(b"also new")
    for name in ("audit.json", "audit.npz", "labels.npz"):
        manifest.checked(tmp_path, tmp_path / name)
    assert (manifest.read(tmp_path) or {})["audit.npz"] == manifest.checksum(tmp_path / "audit.npz")


def test_a_file_that_is_removed_is_not_listed_any_more(tmp_path: Path) -> None:
    path = sealed(tmp_path) / "audit.json"
    with manifest.replacing(tmp_path, [path]):
        path.unlink()
    assert "audit.json" not in (manifest.read(tmp_path) or {})


def test_after_an_error_only_what_was_touched_is_marked(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    before = manifest.read(folder)
    paths = [folder / name for name in ("audit.json", "labels.npz", "audit.npz")]
    with pytest.raises(ZeroDivisionError), manifest.replacing(folder, paths):
        raise ZeroDivisionError
    assert manifest.read(folder) == before

    def half() -> None:
        with manifest.replacing(folder, paths):
            paths[0].write_bytes(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    manifest.checked(folder, paths[1])
    with pytest.raises(InputError, match="interrupted"):
        manifest.checked(folder, paths[0])


def test_a_run_without_a_manifest_gets_none(tmp_path: Path) -> None:
    with manifest.replacing(tmp_path, [tmp_path / "audit.json"]):
        (tmp_path / "audit.json").write_bytes(b"")
    assert manifest.read(tmp_path) is None


def test_a_reader_that_meets_an_audit_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is replaced after the reader has read the manifest and before it reads the file."""
    path = sealed(tmp_path) / "audit.json"
    original = manifest.checksum

    def late(one: Path) -> Any:
        monkeypatch.setattr(manifest, "checksum", original)
        with manifest.replacing(tmp_path, [path]):
            path.write_bytes(b"new")
        return original(one)

    monkeypatch.setattr(manifest, "checksum", late)
    assert manifest.checked(tmp_path, path) == path


def test_what_is_written_and_then_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.npz"
    path.write_bytes(b"right")
    written = Written(tmp_path)
    written.add(path)
    written.checked(tmp_path / "audit.json")  # nothing is known of it
    path.write_bytes(b"wrong")
    with pytest.raises(InputError, match="differs from what the run wrote"):
        written.check_all()
    written.seal([path])
    with pytest.raises(InputError, match="differs"):  # not the damage is sealed
        manifest.checked(tmp_path, path)
