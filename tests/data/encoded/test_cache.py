"""Features are kept by content; a damaged file is no reason to stop."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from proselflc.data.encoded.cache import FeatureCache, key_of

KEYS = [key_of(bytes([k])) for k in range(3)]
VALUES = np.arange(12, dtype=np.float16).reshape(3, 4)


def filled(folder: Path) -> Path:
    cache = FeatureCache(folder, "a", 4)
    cache.put(KEYS, VALUES)
    cache.close()
    (path,) = (folder / "features").glob("*.sqlite")
    return path


def test_what_is_put_is_found_again(tmp_path: Path) -> None:
    filled(tmp_path)
    cache = FeatureCache(tmp_path, "a", 4)
    found = cache.get([*KEYS, key_of(b"another")])
    assert set(found) == set(KEYS)
    for key, row in zip(KEYS, VALUES, strict=True):
        np.testing.assert_array_equal(found[key], row)
    cache.close()


def test_other_weights_have_other_features(tmp_path: Path) -> None:
    filled(tmp_path)
    assert FeatureCache(tmp_path, "b", 4).get(KEYS) == {}


def test_without_a_folder_nothing_is_kept() -> None:
    cache = FeatureCache(None, "a", 4)
    cache.put(KEYS, VALUES)
    assert cache.get(KEYS) == {}


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.write_bytes(b"not a database" * 1000)
    cache = FeatureCache(tmp_path, "a", 4)
    assert cache.get(KEYS) == {}
    cache.put(KEYS, VALUES)
    cache.close()
    assert set(FeatureCache(tmp_path, "a", 4).get(KEYS)) == set(KEYS)


def test_damage_behind_the_header_is_repaired(tmp_path: Path) -> None:
    many = [key_of(str(k).encode()) for k in range(2000)]
    cache = FeatureCache(tmp_path, "a", 400)
    cache.put(many, np.ones((2000, 400), np.float16))
    cache.close()
    (path,) = (tmp_path / "features").glob("*.sqlite")
    content = bytearray(path.read_bytes())
    content[4096 : len(content) // 2] = bytes(len(content) // 2 - 4096)
    path.write_bytes(content)
    for _ in range(3):  # it is noticed when it is read
        cache = FeatureCache(tmp_path, "a", 400)
        cache.get(many)
        cache.put(many[:5], np.ones((5, 400), np.float16))
        cache.close()
    assert set(FeatureCache(tmp_path, "a", 400).get(many[:5])) == set(many[:5])


WRITE = """
import sys, numpy as np
from pathlib import Path
from proselflc.data.encoded.cache import FeatureCache, key_of
cache = FeatureCache(Path(sys.argv[1]), "a", 4)
for k in range(20):
    cache.put([key_of(f"{sys.argv[2]} {k}".encode())], np.ones((1, 4), np.float16))
"""


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITE, str(tmp_path)]
    started = [subprocess.Popen([*words, str(number)]) for number in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    keys = [key_of(f"{number} {k}".encode()) for number in range(4) for k in range(20)]
    assert len(FeatureCache(tmp_path, "a", 4).get(keys)) == 80


def test_rows_of_another_size_or_with_infinity_are_not_used(tmp_path: Path) -> None:
    path = filled(tmp_path)
    connection = sqlite3.connect(path)
    bad = np.full(4, np.inf, np.float16).tobytes()
    values = [(KEYS[0], b"short"), (KEYS[1], bad), (KEYS[2], "text")]
    connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", values)
    connection.commit()
    connection.close()
    assert FeatureCache(tmp_path, "a", 4).get(KEYS) == {}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_place_that_cannot_be_used_is_no_reason_to_stop(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path)
    if kind == "file":  # in the place of the folder
        folder = tmp_path / "plain"
        folder.write_text("")
    else:  # in the place of the file
        folder = tmp_path
        path.unlink()
        path.mkdir()
    cache = FeatureCache(folder, "a", 4)
    cache.put(KEYS, VALUES)
    assert cache.get(KEYS) == {}
    cache.close()
