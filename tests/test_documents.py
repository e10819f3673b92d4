"""Every example in the documents runs, and their generated parts are up to date."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "examples")]

import audit_a_folder  # noqa: E402
import fill_documents  # noqa: E402
import messy_table  # noqa: E402
import table_with_wrong_labels  # noqa: E402
import text_from_tsv  # noqa: E402

from proselflc.cli.app import app, prepare  # noqa: E402

DOCUMENTS = {str(path.relative_to(ROOT)): path for path in fill_documents.DOCUMENTS}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in DOCUMENTS.items()}
FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```", re.M | re.S)


def blocks(language: str) -> list[object]:
    """Return the blocks of a language in all documents."""
    return [
        pytest.param(block, id=f"{name}:{number}")
        for name, text in TEXTS.items()
        for number, block in enumerate(
            block for info, block in FENCED.findall(text) if info == language
        )
    ]


BLOCKS = blocks("python")
COMMANDS = blocks("sh")
# Blocks for Sphinx, and blocks that show the content of a file.
NOT_RUN = {"{toctree}", "toml", "text"}


def test_no_example_is_forgotten() -> None:
    """A block is run, or is of a kind that cannot be; a page need not be named anywhere."""
    assert set(DOCUMENTS) == {"README.md"} | {
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs").rglob("*.md")
        if path.parent != ROOT / "docs" / "reference"
    }
    assert len(BLOCKS) >= 6
    assert len(COMMANDS) >= 2
    run = len(BLOCKS) + len(COMMANDS)
    for name, text in TEXTS.items():
        assert text.count("\n```") % 2 == 0, f"{name} has a block without an end"
        kinds = [info for info, _ in FENCED.findall(text)]
        run -= len([kind for kind in kinds if kind in ("python", "sh")])
        other = set(kinds) - NOT_RUN - {"python", "sh"}
        assert not other, f"{name} has a block of {other}, which no test runs"
    assert run == 0


def backbone(folder: Path) -> None:
    """A model of images as `save_pretrained` writes it."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
    )
    transformers.ViTModel(config).save_pretrained(folder)
    scaling = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(scaling))


def probabilities(path: Path) -> None:
    """Of 300 examples and three classes, which the labels of `class_ids` agree with mostly."""
    p = np.full((300, 3), 0.05)
    p[np.arange(300), np.arange(300) % 3] = 0.9
    np.save(path, p)


def class_ids(path: Path) -> None:
    y = np.arange(300) % 3
    y[::15] = (y[::15] + 1) % 3
    np.save(path, y)


def partly_labelled(path: Path) -> None:
    """Write a table of two groups of points, every fourth of them without a label."""
    rows = [f"{k % 2 + k / 999},{k % 7},{'' if k % 4 == 0 else 'ab'[k % 2]}" for k in range(200)]
    path.write_text("\n".join(["h,w,label", *rows, ""]))


# Files that the pages assume; each is created when a block names it.
FILES: dict[str, Callable[[Path], object]] = {
    "pictures": lambda path: audit_a_folder.make_folder(path, size=160),
    "patients.csv": table_with_wrong_labels.make_table,
    "penguins.csv": messy_table.make_table,
    "partly.csv": partly_labelled,
    "titles.tsv": text_from_tsv.make_tsv,
    "backbone": backbone,
    "pred_probs.npy": probabilities,
    "given.npy": class_ids,
}


@pytest.fixture(scope="session")
def have(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    """Return a function that creates the files that a block names in a folder."""
    shelf = tmp_path_factory.mktemp("have")

    def put(block: str, folder: Path) -> None:
        for name, make in FILES.items():
            if re.search(rf"(?<![\w/]){re.escape(name)}(?![\w.])", block):
                if not (shelf / name).exists():
                    make(shelf / name)
                if (shelf / name).is_dir():
                    shutil.copytree(shelf / name, folder / name)
                else:
                    shutil.copy(shelf / name, folder / name)

    return put


# The command `proselflc` in the shell of a block. It asks the tests' own server, which has
# everything imported, for a forked process, because starting Python with torch takes longer than
# most commands.
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
wanted = dict(arguments=sys.argv[1:], folder=os.getcwd())
server.sendall(json.dumps(wanted).encode() + bytes([10]))
done = json.load(server.makefile(encoding="utf-8"))
sys.stdout.reconfigure(encoding="utf-8")
sys.stdout.write(done["stdout"])
sys.stderr.write(done["stderr"])
sys.exit(done["code"])
"""


@pytest.fixture(scope="session")
def commands(program: Any) -> Iterator[Path]:
    """A folder for PATH with a quick `proselflc` in it."""
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as listening:
        address = f"{name}/server"  # the name of a socket must be short
        listening.bind(address)
        listening.listen()
        threading.Thread(target=answer, args=(listening, program), daemon=True).start()
        client = Path(name, "proselflc")
        client.write_text(CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
        yield Path(name)


def answer(listening: socket.socket, program: Any) -> None:
    """Run the requested commands one after the other, until the socket is closed."""
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        with client, client.makefile("rw", encoding="utf-8") as stream:
            wanted = json.loads(stream.readline())
            done = program.start(*wanted["arguments"], folder=Path(wanted["folder"])).wait(240)
            json.dump({"code": done.code, "stdout": done.stdout, "stderr": done.stderr}, stream)


def run(command: list[str], folder: Path, *more: Path) -> None:
    path = [*map(str, more), str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        command,
        cwd=folder,
        # Other tests use torchrun at the same time; standalone, it looks for a port of its own.
        env={
            **os.environ,
            "PATH": os.pathsep.join(path),
            "OMP_NUM_THREADS": "1",
            "PET_STANDALONE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", BLOCKS)
def test_an_example_runs_as_written(
    code: str, tmp_path: Path, have: Callable[[str, Path], None], program: Any
) -> None:
    have(code, tmp_path)
    done = program.start(code=code, folder=tmp_path).wait(300)
    assert done.code == 0, done.stderr


def test_the_first_example_runs_in_a_new_interpreter(tmp_path: Path) -> None:
    """Nothing that it needs is imported by accident."""
    code = next(block for kind, block in FENCED.findall(TEXTS["README.md"]) if kind == "python")
    run([sys.executable, "-W", "error", "-c", code], tmp_path)


@pytest.mark.parametrize("block", COMMANDS)
def test_commands_run_as_written(
    block: str, tmp_path: Path, have: Callable[[str, Path], None], commands: Path
) -> None:
    have(block, tmp_path)
    run(["sh", "-e", "-c", block], tmp_path, commands)


def indented_commands() -> list[tuple[str, str]]:
    """Commands that are shown and not run: page and line, whose continuations belong to it."""
    line = re.compile(r"^    ((?:proselflc|torchrun|make|pip|python(?= \S+\.py)) .*)$", re.M)
    return [
        (name, found)
        for name, text in TEXTS.items()
        for found in line.findall(FENCED.sub("", text).replace("\\\n", " "))
    ]


def test_commands_that_are_not_run_would_be_understood() -> None:
    """Return the commands that wait for a person, take long or need special hardware or data."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    checked = 0
    for name, line in indented_commands():
        words = shlex.split(line.partition("  #")[0])
        if words[0] == "torchrun" and "proselflc" in words:
            words = words[words.index("proselflc") :]
        if words[0] == "proselflc":
            prepare(words[1:])
            app.parse_args(words[1:], exit_on_error=False, print_error=False)
            checked += 1
        elif words[0] == "make":
            assert words[1] in targets, f"{name}: there is no make {words[1]}"
            checked += 1
        elif words[0] in ("python", "torchrun"):
            (script,) = (word for word in words if word.endswith(".py"))
            assert (ROOT / script).is_file(), f"{name}: there is no {script}"
            checked += 1
        else:
            assert words[:2] == ["pip", "install"], f"{name}: {line}"
    assert checked >= 6


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_programs_make_is_up_to_date(name: str) -> None:
    assert fill_documents.filled(TEXTS[name]) == TEXTS[name], f"{name} is not: run `make docs`"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", TEXTS[name]):
        made = DOCUMENTS[name].parent / link
        if "://" not in link and made.parent != ROOT / "docs" / "reference":
            assert made.exists(), f"{name} links to {link}"


def test_nothing_names_this_machine() -> None:
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not files:
        pytest.skip("not a git checkout, so there is no list of files to look at")
    for name in files:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".json", ".cff") and path.exists():
            text = path.read_text(encoding="utf-8")
            for machine in ("/ro" + "ot/", "/wo" + "rk/", "/ho" + "me/"):
                assert machine not in text, f"{name} names a path of a private machine"
