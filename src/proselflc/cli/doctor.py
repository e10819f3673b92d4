"""`proselflc doctor`: what is installed, what is not and how to get it, and what is odd here.

Nothing is imported that may be missing or broken; what must be tried is tried in another process.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from proselflc import __version__

# What an extra is for, in the words of who may want it; a test holds it against pyproject.toml.
EXTRAS = {
    "cleanlab": "comparing with cleanlab, data frames of label issues",
    "hf": "Hugging Face models and Trainer",
    "hub": "Hugging Face data sets",
    "lightning": "Lightning's Trainer",
    "review": "the page of `proselflc review`",
    "search": "`proselflc search`",
    "skorch": "skorch",
    "tensorboard": "`--tracker tensorboard`",
    "timm": "models of timm",
}
# What an extra brings, where no installation says it; they are imported by the same names.
BROUGHT = {
    "cleanlab": ("cleanlab",),
    "hf": ("transformers",),
    "hub": ("datasets",),
    "lightning": ("lightning",),
    "review": ("starlette", "uvicorn"),
    "search": ("optuna",),
    "skorch": ("skorch",),
    "tensorboard": ("tensorboard",),
    "timm": ("timm",),
}
MALICIOUS = {"lightning": ("2.6.2", "2.6.3")}  # GHSA-w37p-236h-pfx3
AVOID_AMX = "ONEDNN_MAX_CPU_ISA"
_BF16 = (
    "import torch\n"
    "x = torch.ones(64, 256, dtype=torch.bfloat16)\n"
    "print(float(torch.nn.functional.linear(x, x).float().mean()))\n"
)
_DEVICES = (
    "import json, torch\n"
    "print(json.dumps({'version': torch.__version__, 'threads': torch.get_num_threads(), "
    "'cuda': [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())], "
    "'mps': torch.backends.mps.is_available()}))\n"
)


@dataclass(frozen=True)
class Package:
    """A package that something of ours needs.

    Attributes:
        name: as pip knows it.
        wanted: the versions that are, such as ">=2.6"; "" where the installation does not say it.
        installed: the version that is there, or None.
        extra: that brings it, or "" for one without which nothing works.
        fits: whether the installed version is a wanted one; where none is, whether it can be
            imported.
    """

    name: str
    wanted: str
    installed: str | None
    extra: str
    fits: bool


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        versions: of proselflc, Python and the system.
        packages: that are needed, and those that extras bring.
        devices: what torch can compute on.
        places: folders and files that matter, by what they are for.
        notes: what is odd and what to do about it; nothing that keeps the rest from working.
        faults: what keeps it from working, a sentence each.
    """

    versions: dict[str, str]
    packages: tuple[Package, ...]
    devices: dict[str, Any]
    places: dict[str, str]
    notes: tuple[str, ...] = field(default=())
    faults: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {"healthy": not self.faults, **asdict(self)}


def diagnose() -> Diagnosis:
    """Look at everything; nothing is changed and nothing is fetched."""
    found, notes, faults = packages(), [], []
    for one in found:
        if not one.extra and not one.fits:
            what = "is not installed" if one.installed is None else f"{one.installed} does not do"
            faults.append(f'{one.name} {what}: pip install "{one.name}{one.wanted}"')
        elif one.installed is not None and one.wanted and not one.fits:
            asked = f'pip install "{one.name}{one.wanted}"'
            notes.append(f"{one.name} {one.installed} is not supported: {asked}")
        if one.installed in MALICIOUS.get(one.name, ()):
            notes.append(f"{one.name} {one.installed} steals credentials: remove it at once")
    devices, said = _devices()
    faults += said
    notes += _odd()
    return Diagnosis(
        {
            "proselflc": __version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        found,
        devices,
        _places(),
        tuple(notes),
        tuple(faults),
    )


def packages() -> tuple[Package, ...]:
    """What proselflc says that it needs, and what is there of it.

    Nothing of that is imported; what an extra brings that the installation does not know of is
    tried in another process.
    """
    from packaging.requirements import Requirement

    try:
        needed = metadata.requires("proselflc") or []
    except metadata.PackageNotFoundError:  # run from its source, without being installed
        needed = []
    result = []
    for line in needed:
        wanted = Requirement(line)
        for extra in ("", *EXTRAS):
            marker = wanted.marker
            is_meant = marker is None or marker.evaluate({"extra": extra})
            if not is_meant or (extra and (marker is None or marker.evaluate({"extra": ""}))):
                continue
            there = _version(wanted.name)
            fits = there is not None and wanted.specifier.contains(there, prereleases=True)
            result.append(Package(wanted.name, str(wanted.specifier), there, extra, fits))
            break
    told = {one.extra for one in result}
    result += [
        _tried_package(name, extra)
        for extra, names in BROUGHT.items()
        if extra not in told
        for name in names
    ]
    return tuple(sorted(result, key=lambda one: (one.extra, one.name)))


def _tried_package(name: str, extra: str) -> Package:
    there = _version(name)
    may_run = there is not None and there not in MALICIOUS.get(name, ())
    return Package(name, "", there, extra, may_run and _tried(f"import {name}").returncode == 0)


def in_words(found: Diagnosis) -> str:
    """The diagnosis for a terminal."""
    lines = ["  ".join(f"{name} {version}" for name, version in found.versions.items()), ""]
    own = [one for one in found.packages if not one.extra]
    needed = (
        f"{sum(one.fits for one in own)} of {len(own)} packages are there: "
        + ", ".join(f"{one.name} {one.installed or 'MISSING'}" for one in own)
        if own
        else "proselflc runs from its source, and no installation says what it needs"
    )
    lines += [
        f"needed      {needed}",
        f"devices     {_in_words(found.devices)}",
        *(f"{what:11} {place}" for what, place in found.places.items()),
        "",
    ]
    for extra, purpose in EXTRAS.items():
        brought = [one for one in found.packages if one.extra == extra]
        missing = [one.name for one in brought if one.installed is None]
        there = ", ".join(f"{one.name} {one.installed}" for one in brought if one.installed)
        broken = [one.name for one in brought if not one.wanted and not one.fits]
        if missing:
            lines.append(f'{extra:11} no   {purpose}: pip install "proselflc[{extra}]"')
        elif broken:
            lines.append(f"{extra:11} no   {purpose}: {broken[0]} cannot be imported")
        else:
            lines.append(f"{extra:11} yes  {purpose} ({there})")
    lines += ["", *(f"note: {one}" for one in found.notes)] if found.notes else []
    lines += ["", "Everything that is needed is there."] if own and not found.faults else []
    return "\n".join(lines) + "\n"


def _in_words(devices: dict[str, Any]) -> str:
    if not devices:
        return "torch could not be asked"
    parts = [*devices["cuda"], *(["Apple GPU"] if devices["mps"] else [])]
    cores = f"{os.cpu_count()} CPU cores, {devices['threads']} threads"
    return ", ".join([*parts, cores]) + ("" if parts else "; no GPU")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> tuple[dict[str, Any], list[str]]:
    """What torch sees, and what is wrong with it, asked in another process: it may be broken."""
    import json

    done = _tried(_DEVICES)
    if done.returncode == 0:
        devices: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return devices, []
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {}, [f"torch cannot be imported ({said}): install it anew, see pytorch.org"]


def _odd() -> list[str]:
    """What works here in another way than one would think."""
    notes = []
    if _tried(_BF16).returncode < 0:
        notes.append(
            "--precision bf16 dies here with an illegal instruction: the processor promises "
            f"matrix instructions that this machine refuses. Set {AVOID_AMX}=AVX512_CORE"
        )
    for name in ("torchvision", "timm"):
        if _version(name) is not None:
            done = _tried(f"import {name}")
            if done.returncode != 0:
                said = (done.stderr.strip().splitlines() or ["it ended"])[-1]
                notes.append(f"{name} is installed and cannot be imported ({said[:120]})")
    if shutil.which("g++") is None and shutil.which("c++") is None:
        notes.append("--compile needs a C++ compiler, and there is none")
    return notes


def _places() -> dict[str, str]:
    """Where things are kept: the program, data that is fetched, runs, other libraries' caches."""
    places = {"program": str(Path(__file__).parents[1])}
    try:
        from proselflc.data.opening import root
        from proselflc.data.request import Request

        cache = root(Request())
        places["data"] = f"{cache}{'' if cache.is_dir() else ' (not there yet)'}"
    except ImportError:
        pass  # what is missing is said elsewhere; this must answer all the same
    here = Path.cwd()
    free = shutil.disk_usage(here).free / 1e9
    writable = "" if os.access(here, os.W_OK) else ", cannot be written to"
    places["runs"] = f"{here / 'runs'} ({free:,.0f} GB free{writable})"
    places["models"] = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return places


def _tried(code: str) -> subprocess.CompletedProcess[str]:
    """What a few lines do in a Python of their own, which may die of them."""
    try:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([], 1, "", "it did not answer within two minutes")
