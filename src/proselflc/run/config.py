"""The options of a run: one frozen object, from flags and a TOML file, written into the run.

Every option is a key of the file too. Flags win over the file, and the file over defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from cyclopts import Parameter

from proselflc import __version__, methods
from proselflc.data.request import Request
from proselflc.errors import InputError, invalid_option, unknown
from proselflc.files.regular import is_regular, whole_file
from proselflc.models import pixels
from proselflc.options import MOST_PROCESSES, Whole, check_least
from proselflc.training.method import Method, not_taken
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import FORMAT, RunDirectory, check_format, is_recorded
from proselflc.wording import option

# Where the data is and how it is read may change between the parts of a run; the fingerprint of
# the labels tells whether it is the same data.
MAY_CHANGE = ("data_root", "cache", "workers", "checkpoint_seconds", "tracker")
_NOT_OPTIONS = ("format", "versions", "fingerprint")
# The meaning of a config that does not hold an option, of a run from before there was it.
_IF_ABSENT = {"normalize": "data", "image_size": 224}


@dataclass(frozen=True)
class Config:
    """The options of one training run.

    Attributes:
        request: data to train on.
        noise: label noise to add before training, as KIND:RATE, such as symmetric:0.4, or none;
            `proselflc noise --help` lists the kinds.
        noise_seed: seed of the noise (default: the run's seed).
        trusted: examples with correct labels, used for validation: a share of the training data to
            set aside, such as 0.2 (with its true labels if they are known), or a folder or file.
            A method that trains on them (see `proselflc methods`) has no validation part.
        method: training method; `proselflc methods` lists them, and `--method NAME --help` shows
            the parameters of one.
        parameters: the method's own parameters by name; the others keep their defaults.
        model: model to train; `proselflc models` lists them. For tables also auto (the default),
            boosting, lightgbm, xgboost, catboost or sklearn:package.Class; otherwise also
            package.module:factory, timm:NAME or torchvision:NAME. The default depends on the data.
        weights: initial weights of the model, a safetensors file or a state dict.
        normalize: mean and standard deviation that pixels are normalised by: data, as measured;
            imagenet; none, for pixels from 0 to 1; or numbers, as in 0.5,0.5,0.5/0.5,0.5,0.5. The
            default is those of the initial weights if they are known, otherwise data.
        augment: augmentation of training images: random crops, horizontal flips, both or none. The
            default is both for photos and none for greyscale images.
        backbone: pretrained model that turns photos or texts into features, which a linear model
            learns: efficientnet_lite0, minilm, wordllama or hashed (several joined by +), hf:DIR,
            timm:NAME, none, or auto (the default), which chooses for image files and texts.
        image_size: height and width that image files are resized to (default: 160 for a pretrained
            model; otherwise their own up to 64 pixels if no model is named, else 224).
        recipe: how to train.
        eval_epochs: number of epochs between evaluations (default: about twenty evaluations).
        eval_steps: number of steps between evaluations, instead of eval-epochs.
        eval_examples: maximum number of training examples to evaluate on; always the same ones,
            evenly spaced.
        checkpoint_seconds: minimum number of seconds between checkpoints.
        workers: number of processes that decode image files.
        tracker: experiment tracker to log to: tensorboard, or another one that Accelerate supports.
    """

    request: Annotated[Request, Parameter(name="*")] = field(default_factory=Request)
    noise: str | None = None
    noise_seed: Whole | None = None
    trusted: str | None = None
    method: str = "proselflc"
    parameters: Annotated[Mapping[str, Any], Parameter(parse=False)] = field(default_factory=dict)
    model: str | None = None
    weights: Path | None = None
    normalize: str | None = None
    augment: Literal["crop-flip", "crop", "flip", "none"] | None = None
    backbone: str | None = None
    image_size: Whole | None = None
    recipe: Annotated[Recipe, Parameter(name="*")] = field(default_factory=Recipe)
    eval_epochs: Whole | None = None
    eval_steps: Whole | None = None
    eval_examples: Whole = 50_000
    checkpoint_seconds: float = 30.0
    workers: Whole = 2
    tracker: str | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.parameters.items() if value is not None}
        object.__setattr__(self, "parameters", given)
        if self.eval_epochs is not None and self.eval_steps is not None:
            raise InputError(
                f"give one of {option('eval_epochs')} and {option('eval_steps')}, not both",
                field="eval_steps",
            )
        if self.noise == "none":  # overrides the noise of a config file
            object.__setattr__(self, "noise", None)
        if self.normalize is not None:
            pixels.parse(self.normalize)
        positive = dict.fromkeys(("eval_epochs", "eval_steps", "eval_examples"), 1)
        least = {**positive, "image_size": 8, "workers": 0, "noise_seed": 0}
        check_least(self, least, {"image_size": 1 << 14, "workers": MOST_PROCESSES})
        if not self.checkpoint_seconds >= 0:
            raise invalid_option(
                "checkpoint_seconds", f"must be 0 or more, got {self.checkpoint_seconds}"
            )

    @classmethod
    def from_table(cls, table: Mapping[str, Any], source: Path) -> Config:
        """Return the options in the table of a run's config.toml; `source` names it in errors."""
        values = read_options(table, source)
        own = [name for name in values if name.startswith("method.")]
        parameters = {name.removeprefix("method."): values.pop(name) for name in own}

        def take(kind: type) -> dict[str, Any]:
            return {f.name: values.pop(f.name) for f in fields(kind) if f.name in values}

        try:
            return cls(
                request=Request(**take(Request)),
                recipe=Recipe(**take(Recipe)),
                parameters=parameters,
                **values,
            )
        except InputError as error:
            raise InputError(
                f"{source} is damaged: {error.reason}", field=error.field, fix=error.fix
            ) from None

    def values(self) -> dict[str, Any]:
        """Return every option by its name, those of the method as method.NAME."""
        flat: dict[str, Any] = {}
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if name in ("request", "recipe"):
                flat |= {f.name: getattr(value, f.name) for f in fields(value)}
            elif name == "parameters":
                flat |= {f"method.{key}": own for key, own in value.items()}
            else:
                flat[name] = value
        return flat

    def table(self) -> dict[str, Any]:
        """Return the options as TOML holds them: options that are not set are absent."""
        plain = {
            key: msgspec.to_builtins(list(value) if type(value) is tuple else value, enc_hook=str)
            for key, value in self.values().items()
            if value is not None and value != ()
        }
        method = {"name": plain.pop("method")}
        for key in [key for key in plain if key.startswith("method.")]:
            method[key.removeprefix("method.")] = plain.pop(key)
        return {**plain, "method": method}

    def write(self, path: Path, fingerprint: str) -> None:
        """Write the options of a run whose labels have a fingerprint."""
        write_config(path, fingerprint, self.table())


def write_config(path: Path, fingerprint: str, options: Mapping[str, Any]) -> None:
    """Write options, the labels' fingerprint and the versions, whole or not at all."""
    import tomli_w

    about = {"format": FORMAT, "fingerprint": fingerprint}
    with whole_file(path) as file:
        tomli_w.dump({**about, **options, "versions": versions()}, file)  # tables come last


def versions() -> dict[str, str]:
    """Return the versions of what computes a run."""
    import platform
    from importlib.metadata import version

    packages = {package: version(package) for package in ("torch", "numpy", "accelerate")}
    return {"proselflc": __version__, "python": platform.python_version(), **packages}


def recipes() -> dict[str, Path]:
    """Return the recipes that come with the package, by name."""
    from importlib.resources import files

    folder = Path(str(files("proselflc.run") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find(name: str) -> Path:
    """Return the config file with a path, or the recipe with a name."""
    known = recipes()
    if name in known and not Path(name).is_file():
        return known[name]
    if not is_regular(name):
        raise InputError(
            f"there is no file {name}, and as a name it is an {unknown('recipe', name, known)}",
            field="config",
        )
    return Path(name)


def read_options(
    table: Mapping[str, Any], source: Path, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the options in the table of a TOML file, by name, with the types of their fields."""
    check_format(table, source)
    if is_recorded(table):
        raise InputError(
            f"{source} is of a run that was recorded from your own training loop, so it holds no "
            "options to train with",
            fix="train with that loop",
        )
    flat = {
        name.replace("-", "_") if not name.startswith("method.") else name: value
        for name, value in _flatten(table).items()
        if name not in _NOT_OPTIONS
    }
    if "fingerprint" in table and "weights" in flat:
        flat = {**_IF_ABSENT, **flat}  # of a run from before there was the option
    try:
        hints = {**_field_types(), **(more or {}), **_parameter_types(flat)}
    except InputError as error:
        raise InputError(f"{source}: {error}", field=error.field) from None
    values = {}
    for name, value in flat.items():
        if name not in hints:
            raise InputError(f"{source}: {unknown('key', _key(name), map(_key, hints))}")
        try:
            values[name] = msgspec.convert(value, hints[name], dec_hook=lambda kind, v: kind(v))
        except (msgspec.ValidationError, TypeError):
            expected = f"{_key(name)} must be {_expected(hints[name])}"
            raise InputError(f"{source}: {expected}, got {value!r}", field=name) from None
    if "trusted" in values:
        values["trusted"] = str(values["trusted"])
    return values


def _key(name: str) -> str:
    return name.replace("_", "-") if not name.startswith("method.") else name


def _field_types() -> dict[str, Any]:
    """Return the types of all options that are not parameters of a method, by name."""
    hints: dict[str, Any] = {}
    for owner in (Config, Request, Recipe):
        hints |= get_type_hints(owner)
    for name in ("request", "recipe", "parameters"):
        del hints[name]
    return {**hints, "trusted": str | int | float}


def _parameter_types(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of the parameters of the methods that options name, by "method.NAME"."""
    method = options.get("method", Config.method)
    if not isinstance(method, str):
        raise InputError(f"method must be a string, got {method!r}", field="method")
    given = [name for name in options if name.startswith("method.")]
    if not given:
        return {}
    takers = tuple(methods.find(name.strip()) for name in method.split(","))
    for name in given:
        check_taken(name.removeprefix("method."), takers)
    return {
        f"method.{name}": hint
        for taker in takers
        for name, hint in get_type_hints(taker.parameters).items()
    }


def _expected(hint: Any) -> str:
    """Return a phrase for the values that a type allows."""
    if get_origin(hint) is tuple:
        return "a list of strings"
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if len(kinds) > 1:
        return "a share such as 0.2, a file or a folder"
    names = {bool: "true or false", int: "a whole number", float: "a number"}
    return _expected(kinds[0]) if kinds else names.get(hint, "a string")


def check_taken(parameter: str, takers: Sequence[Method[Any]]) -> None:
    """Refuse a parameter that none of the methods takes."""
    if any(parameter.lower() in map(str.lower, taker.takes) for taker in takers):
        return
    if len(takers) == 1:
        raise not_taken(takers[0], parameter)
    names = ", ".join(taker.name for taker in takers)
    raise invalid_option(
        f"method.{parameter}", f"is not a parameter of {names}", fix="leave it out"
    )


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each option that differs between two tables and must not change."""
    return [
        f"{key} ({before} there, {after} now)"
        for key, (before, after) in different_options(stored, now).items()
    ]


def different_options(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return the two values, in words, of each option that differs and must not."""
    before, after = ({**_IF_ABSENT, **_flatten(table)} for table in (one, other))
    return {
        key: (_describe(before.get(key)), _describe(after.get(key)))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in (*MAY_CHANGE, *_NOT_OPTIONS)
    }


def _flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with `method.NAME` for the keys of its table `method`."""
    flat = dict(table)
    method = flat.get("method")
    if isinstance(method, Mapping):
        del flat["method"]
        flat |= {"method" if key == "name" else f"method.{key}": v for key, v in method.items()}
    return flat


def _describe(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)


@dataclass(frozen=True)
class OutputOptions:
    """Where a run or a study is written, and what to do with one that exists there."""

    out: Path | None = None  # None for a new one below `runs`
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        resume, overwrite = option("resume"), option("overwrite", True)
        if self.resume and self.overwrite:
            raise InputError(
                f"{resume} continues what is in {option('out')}, and {overwrite} replaces it",
                field="overwrite",
                fix="give one of them",
            )
        if self.resume and self.out is None:
            raise InputError(
                f"{resume} needs {option('out')}, the directory to continue", field="out"
            )


def run_path(config: Config, output: OutputOptions) -> Path:
    """Return the directory of a run, the same in all processes."""
    if output.out is not None:
        return output.out
    from accelerate.utils import broadcast_object_list

    chosen = [str(new_path(config, config.method))]
    broadcast_object_list(chosen, from_process=0)
    return Path(chosen[0])


def new_path(config: Config, purpose: str) -> Path:
    """Return a path below `runs` that does not exist, named after the data and the purpose."""
    stem = f"{Path(config.request.data).stem.replace(':', '-') or 'data'}-{purpose}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


def check_output(directory: RunDirectory, output: OutputOptions) -> bool:
    """Return whether there is anything to do; refuse to touch a run without permission."""
    if output.resume and directory.is_begun:
        directory.check_format()
    if output.resume and directory.is_finished:
        return False
    replace, other = f"{option('overwrite', True)} to replace it", f"another {option('out')}"
    if directory.is_begun and not output.resume and not output.overwrite:
        state = "a finished" if directory.is_finished else "an unfinished"
        hint = "" if directory.is_finished else f"{option('resume', True)} to continue it, "
        raise InputError(
            f"{directory.path} holds {state} run",
            field="out",
            fix=f"pass {hint}{replace}, or {other}",
        )
    foreign = () if directory.is_begun or output.overwrite else directory.present()
    if foreign:
        raise InputError(
            f"{directory.path} holds {foreign[0]} but is not a run",
            field="out",
            fix=f"choose {other}, or pass {replace}",
        )
    return True
