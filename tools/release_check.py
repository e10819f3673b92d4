"""Try the package as a new user: build it, install it elsewhere, follow the README.

The wheel is installed under constraints.txt into an environment of its own, in a folder that knows
nothing of the repository. Then every block of the README runs there, and the doctor has to be
content.

    python tools/release_check.py [--keep] [--quick]

--keep leaves the folder there to look at; --quick takes the packages of this environment instead of
installing all of them anew.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tools")]


def main(arguments: list[str]) -> None:
    unknown = set(arguments) - {"--keep", "--quick"}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are --keep and --quick")
    folder = Path(tempfile.mkdtemp(prefix="proselflc-release-"))
    try:
        check(folder, quick="--quick" in arguments)
        say("the release is good" + (f": see {folder}" if "--keep" in arguments else ""))
    finally:
        if "--keep" not in arguments:
            shutil.rmtree(folder)


def check(folder: Path, *, quick: bool) -> None:
    """Build, install and use the package in a folder."""
    say("building")
    run([sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(ROOT)], folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    (archive,) = (folder / "dist").glob("*.tar.gz")
    look_into(wheel)
    say(f"{wheel.name} and {archive.name}")

    home = folder / "environment"
    venv.create(home, with_pip=True, system_site_packages=False)
    python = home / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if quick:
        here = subprocess.run(
            [sys.executable, "-c", "import site; print(site.getsitepackages()[0])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        (there,) = home.glob("lib/python*/site-packages")
        (there / "borrowed.pth").write_text(here + "\n", encoding="utf-8")
        run([*pip, "--no-deps", "--force-reinstall", str(wheel)], folder)
    else:
        run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], folder)
    say("installed")

    use(folder / "elsewhere", home / "bin")


def look_into(wheel: Path) -> None:
    """Check that the wheel has every file of the package, and nothing else."""
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    there = (path for path in (source / "proselflc").rglob("*") if path.is_file())
    wanted = {str(path.relative_to(source)) for path in there if "__pycache__" not in path.parts}
    assert "proselflc/py.typed" in wanted
    wanted.add("proselflc/methods/method_cost.json")  # which the benchmarks have in a checkout
    missing = wanted - names
    assert not missing, f"not in the wheel: {sorted(missing)}"
    strays = [n for n in names if not n.startswith("proselflc") or "__pycache__" in n]
    assert not strays, f"in the wheel and should not be: {strays}"


def use(elsewhere: Path, commands: Path) -> None:
    """Follow the README where only the installed package can be imported."""
    import table_with_wrong_labels

    elsewhere.mkdir()
    table_with_wrong_labels.make_table(elsewhere / "patients.csv")
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {**{k: v for k, v in os.environ.items() if k not in own}, "PATH": path}
    code = "import proselflc; print(proselflc.__file__)"
    at = run([str(commands / "python"), "-c", code], elsewhere, env).strip()
    assert at.startswith(str(commands.parent)), f"{at} is used, not what was installed"
    run(["proselflc", "doctor"], elsewhere, env)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```", readme, re.M | re.S):
        say("$ " + block.strip().replace("\n", "\n$ "))
        run(["sh", "-e", "-c", block], elsewhere, env)
    for block in re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S):
        say(f"python: {block.count(chr(10))} lines of the README")
        run([str(commands / "python"), "-W", "error", "-c", block], elsewhere, env)
    run(["proselflc", "demo", "--seeds", "1", "--quiet", "--out", "demo"], elsewhere, env)
    assert (elsewhere / "demo" / "report.html").is_file()
    before, after = (
        table_with_wrong_labels.read_labels(elsewhere / name)
        for name in ("patients.csv", "corrected.csv")
    )
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert changed > 0, "the table was not corrected"
    say(f"{changed} of {len(before)} labels of the README's table were corrected")


def run(command: list[str], folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
