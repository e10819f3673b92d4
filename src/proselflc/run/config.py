"""What a run is told: one frozen object, from flags and a TOML file, written into the run.

Every option is a key of the file too; flags win over the file, the file over defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from cyclopts import Parameter

from proselflc import __version__
from proselflc.data.request import Request
from proselflc.errors import InputError, unknown
from proselflc.files.regular import is_regular
from proselflc.files.whole import whole_file
from proselflc.models import pixels
from proselflc.options import MOST_PROCESSES, Whole, check_least
from proselflc.run import method_options
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import FORMAT, check_format, is_recorded

# Where data lies and how it is read may change between the parts of a run; the fingerprint of the
# labels tells whether it is the same data.
MAY_CHANGE = ("data_root", "cache", "workers", "checkpoint_seconds", "tracker")
_ASIDE = ("format", "versions", "fingerprint")
_MEANT = {"normalize": "data"}  # what is meant where a run says nothing of it
_KINDS: dict[str, tuple[Any, str]] = {
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "str": (str, "a string"),
    "share": ((str, int, float), "a share such as 0.2, a file or a folder"),
    "list": (list, "a list of strings"),
}
_OF_SEARCH = {
    **{"space": "list", "trials": "int", "prune": "bool", "jobs": "int", "storage": "str"},
    "no-retrain": "bool",
}
_OF_TRAIN = ("out", "resume", "overwrite", "quiet", "json")  # options of the command itself


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
        model: model to train; `proselflc models` lists them. Also package.module:factory,
            timm:NAME or torchvision:NAME. The default depends on the data.
        weights: initial weights of the model, a safetensors file or a state dict.
        normalize: mean and standard deviation that pixels are normalised by: data, as measured;
            imagenet; none, for pixels from 0 to 1; or numbers, as in 0.5,0.5,0.5/0.5,0.5,0.5. The
            default is those of the initial weights if they are known, otherwise data.
        augment: augmentation of training images: random crops, horizontal flips, both or none. The
            default is both for photos and none for greyscale images.
        image_size: height and width that image files are resized to.
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
    image_size: Whole = 224
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
            raise InputError("give one of --eval-epochs and --eval-steps, not both")
        if self.noise == "none":  # takes back what a --config says
            object.__setattr__(self, "noise", None)
        if self.normalize is not None:
            pixels.parse(self.normalize)
        positive = dict.fromkeys(("eval_epochs", "eval_steps", "eval_examples"), 1)
        least = {**positive, "image_size": 8, "workers": 0, "noise_seed": 0}
        check_least(self, least, {"image_size": 1 << 14, "workers": MOST_PROCESSES})
        if not self.checkpoint_seconds >= 0:
            raise InputError(
                f"--checkpoint-seconds must be 0 or more, got {self.checkpoint_seconds}"
            )

    @classmethod
    def from_table(cls, table: Mapping[str, Any], source: Path) -> Config:
        """The options that a run has written, checked as those of a command line are.

        Args:
            table: as read from its config.toml.
            source: that file, for messages.

        Raises:
            InputError: an option is unknown, or is no such value.
        """
        from cyclopts import App, CycloptsError
        from cyclopts.config import Dict

        default = cls()

        def read(*, options: Annotated[Config, Parameter(name="*")] = default) -> Config:
            return options

        values = options(table, source, ())
        app = App(config=(Dict(values, source=str(source)),))
        try:
            takers = method_options.chosen(values.get("method", default.method))
            app.default(method_options.taking(read, takers))
            result: Config = app(
                [], exit_on_error=False, print_error=False, result_action="return_value"
            )
        except (CycloptsError, InputError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{source} is damaged: {reason}") from None
        return result

    def values(self) -> dict[str, Any]:
        """Every option by its name, those of the method as method.NAME."""
        flat: dict[str, Any] = {}
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if name in ("request", "recipe"):
                flat |= {f.name: getattr(value, f.name) for f in fields(value)}
            elif name == "parameters":
                flat |= {f"method.{key}": one for key, one in value.items()}
            else:
                flat[name] = value
        return flat

    def table(self) -> dict[str, Any]:
        """The options as TOML holds them: what is not set is left out, paths are strings."""
        plain = {
            key: _in_toml(value)
            for key, value in self.values().items()
            if value is not None and value != ()
        }
        method = {"name": plain.pop("method")}
        for key in [key for key in plain if key.startswith("method.")]:
            method[key.removeprefix("method.")] = plain.pop(key)
        return {**plain, "method": method}

    def write(self, path: Path, fingerprint: str) -> None:
        """Write the options, the labels' fingerprint and the versions, whole or not at all."""
        import tomli_w

        # Tables come last in TOML.
        said: dict[str, Any] = {"format": FORMAT, "fingerprint": fingerprint}
        content = {**said, **self.table(), "versions": versions()}
        with whole_file(path) as file:
            tomli_w.dump(content, file)


def _in_toml(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def versions() -> dict[str, str]:
    """What computed a run."""
    import platform
    from importlib.metadata import version

    packages = {package: version(package) for package in ("torch", "numpy", "accelerate")}
    return {"proselflc": __version__, "python": platform.python_version(), **packages}


def recipes() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    from importlib.resources import files

    folder = Path(str(files("proselflc.run") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find(name: str) -> Path:
    """The file that `--config` names: a path, or a recipe that comes with the package."""
    known = recipes()
    if name in known and not Path(name).is_file():
        return known[name]
    if not is_regular(name):
        raise InputError(
            f"there is no file {name}, and as a name it is an " + unknown("recipe", name, known)
        )
    return Path(name)


def options(table: Mapping[str, Any], source: Path, flags: Iterable[str]) -> dict[str, Any]:
    """A table of a TOML file as the options of a command line, without their dashes.

    A file's parameters of the method are dropped where a flag names another method, and its number
    of steps where a flag says how many epochs, and the other way round.

    Args:
        table: as read from the file.
        source: the file, for messages.
        flags: the command line.
    """
    check_format(table, source)
    if is_recorded(table):
        raise InputError(
            f"{source} is of a run that was recorded from a training loop of your own: it says "
            "nothing that could be trained by, so train with that loop"
        )
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = str(key).replace("_", "-")
        if name in _ASIDE:
            continue
        if name == "method" and isinstance(value, dict):
            flat |= {f"method.{k}" if k != "name" else "method": v for k, v in value.items()}
        else:
            flat[name] = value
    if "fingerprint" in table and "weights" in flat:
        flat.setdefault("normalize", _MEANT["normalize"])  # of a run of before there was the option
    kinds = _kinds()
    known = {name.replace("_", "-") for name in Config().values()} | set(_OF_TRAIN)
    given = [name.removeprefix("method.") for name in flat if name.startswith("method.")]
    if given:
        own = _parameter_kinds(flat.get("method", Config.method), given, source)
        kinds, known = kinds | own, known | own.keys()
    for name, value in flat.items():
        if name not in known:
            raise InputError(f"{source}: {unknown('key', name, known)}")
        _check_kind(name, value, kinds.get(name, "bool" if name != "out" else "str"), source)
    chosen = flag_value(flags, "--method")
    if chosen is not None and chosen != flat.get("method"):
        flat = {name: value for name, value in flat.items() if not name.startswith("method.")}
    for one, other in (("epochs", "steps"), ("eval-epochs", "eval-steps")):
        for flag, dropped in ((one, other), (other, one)):
            if flag_value(flags, f"--{flag}") is not None:
                flat.pop(dropped, None)
    return {name.lower(): _as_flag(value) for name, value in flat.items() if value != []}


def _check_kind(name: str, value: object, kind: str, source: Path) -> None:
    """Refuse a value of a TOML file that is not of the kind, a key of `_KINDS`."""
    wanted, word = _KINDS[kind]
    is_such = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if isinstance(value, list):
        is_such = is_such and all(isinstance(one, str) for one in value)
    if not is_such:
        raise InputError(f"{source}: {name} must be {word}, got {value!r}")


def _as_flag(value: object) -> str | list[str]:
    """A value of a TOML file as a command line says it."""
    if isinstance(value, list):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def of_search(table: dict[str, Any], source: Path) -> dict[str, Any]:
    """Take the options of `search` itself out of a table, as a command line would say them.

    Args:
        table: as read from the file.
        source: the file, for messages.

    Raises:
        InputError: one is no such value.
    """
    found: dict[str, Any] = {}
    table.pop("study", None)  # what a study says of itself
    for name, kind in _OF_SEARCH.items():
        value = table.pop(name, table.pop(name.replace("-", "_"), None))
        if value is None:
            continue
        _check_kind(name, value, kind, source)
        if value != []:
            found[name] = _as_flag(value)
    return found


def _parameter_kinds(method: object, given: Iterable[str], source: Path) -> dict[str, str]:
    """What kind of value the parameters take that a file gives its methods, as `_kinds` has it."""
    if not isinstance(method, str):
        raise InputError(f"{source}: method must be a string, got {method!r}")
    try:
        takers = method_options.chosen(method)
        for name in given:
            method_options.refuse_unless_taken(name, takers)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    kinds = method_options.kinds(takers)
    return {f"method.{name}": kind.__name__ for name, kind in kinds.items()}


def _kinds() -> dict[str, str]:
    """What kind of value every option takes, a key of `_KINDS`, by its name in a TOML file."""
    result = {}
    for owner in (Config, Request, Recipe):
        for name, hint in get_type_hints(owner).items():
            types = get_args(hint) or (hint,)
            number = next((one for one in (bool, int, float) if one in types), str)
            result[name.replace("_", "-")] = number.__name__
    return {**result, "trusted": "share", "ignore-column": "list"}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Which options differ between two tables, in words, those left out that may."""
    flat, also = _flattened(one), _flattened(other)
    return [
        f"{key} ({_shown(flat.get(key, _MEANT.get(key)))} there, "
        f"{_shown(also.get(key, _MEANT.get(key)))} now)"
        for key in sorted(flat.keys() | also.keys())
        if flat.get(key, _MEANT.get(key)) != also.get(key, _MEANT.get(key))
        and key not in (*MAY_CHANGE, *_ASIDE)
    ]


def _flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in table.items() if not isinstance(value, dict)}
    method = table.get("method", {})
    if not isinstance(method, Mapping):
        return {**flat, "method": method}
    return flat | {f"method.{key}" if key != "name" else "method": v for key, v in method.items()}


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)


def flag_value(flags: Iterable[str], name: str) -> str | None:
    """What a flag is set to on a command line, the last time it is there."""
    found, waiting = None, False
    for word in flags:
        if waiting:
            found, waiting = word, False
        elif word == name:
            waiting = True
        elif word.startswith(name + "="):
            found = word.partition("=")[2]
    return found
