"""Write the pages of the site that are made from code: methods, commands, options, names.

`docs/conf.py` calls this before Sphinx reads the pages; nothing of it is kept in the repository.

    python tools/site_pages.py docs/reference
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import proselflc
from proselflc import functional
from proselflc.cli import options
from proselflc.cli.app import app, prepare
from proselflc.methods import costs, every
from proselflc.run.config import recipes
from proselflc.training.method import Method

ROOT = Path(__file__).parents[1]
# Parts of the configuration, by the field of `Config` that holds them; "" is `Config` itself.
PARTS = {
    "request": "Which data",
    "recipe": "How to train",
    "": "The run",
}
DATA = "[which data](configuration.md#which-data)"


def write(folder: Path) -> None:
    """Write every page into a folder; pages that are up to date are not touched.

    Sphinx reads only those again that have changed.
    """
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return every page by its name."""
    return {
        "methods.md": methods(),
        "commands.md": commands(),
        "configuration.md": configuration(),
        "python.md": python(),
        "changelog.md": _of_the_repository("CHANGELOG.md"),
        "contributing.md": _of_the_repository("CONTRIBUTING.md"),
    }


def methods() -> str:
    """Return the page of methods: a table, and a section for every method."""
    cost = costs()
    rows = [
        (f"[{one.title}](#method-{name}) `{name}`", one.where, _times(cost, name), one.when)
        for name, one in every().items()
    ]
    return "\n\n".join(
        [
            "# All methods",
            "Choose by `--method NAME`, or take the criterion into your own loop. In short: begin "
            "with `proselflc`, and have `cce` beside it.",
            "The cost is that of a step beside one of cross entropy, as measured with a ResNet-20. "
            'What was gained "on photos" is on the table of [results](../results.md), a small '
            'setting; what was "on digits" is among [methods with stages](../methods.md). '
            "[The algebra](../algebra.md) explains the letters.",
            _table(("method", "paper", "cost", "when to use"), rows),
            *(_method(name, one, _times(cost, name)) for name, one in every().items()),
        ]
    )


def _method(name: str, one: Method[Any], cost: str) -> str:
    facts = {"loss": f"`{one.loss}`"}
    target = one.default_target()
    if target is not None and target.reference is not None:
        facts["target q̃"] = f"`{target.formula}`"
        facts["trust ε"] = f"`{target.trust.symbol}`"
    facts |= {
        "low entropy": one.entropy,
        "class taught": one.semantic_class,
        "paper": one.where,
        "criterion": f"{{py:class}}`~proselflc.{one.criterion}`",
        "needs": one.needs,
        "cost of a step": f"{cost} cross entropy's",
    }
    means, standard = options.meanings(one), options.defaults(one)
    defaults = [
        (f"`--method.{key}`", _default(standard[key]), _escaped(means[key])) for key in one.takes
    ]
    parts = [
        f"(method-{name})=\n## {one.title}",
        f"`--method {name}`. {one.when}",
        _table(("", ""), [(key, value) for key, value in facts.items() if value != "–"]),
    ]
    if defaults:
        parts.append(_table(("parameter", "default", "meaning"), defaults))
    return "\n\n".join(parts)


def _times(cost: Mapping[str, float], name: str) -> str:
    return f"×\N{NO-BREAK SPACE}{cost[name]:.1f}" if name in cost else "–"


def _default(said: str) -> str:
    return {"must be given": said, "none": "–"}.get(said, f"`{said}`")


def commands() -> str:
    """Return the page of commands with their own options."""
    sections = []
    prepare(["noise"])
    for name in sorted(one for one in app if not one.startswith("-")):
        arguments = _arguments(name)
        own = [one for one in arguments if not one.keys]
        others = [one for one in arguments if one.keys and not one.name.startswith("--method.")]
        text = _without_arguments(app[name].help)
        words = [one.name if one.required else f"[{one.name}]" for one in own if _has_place(one)]
        usage = " ".join(["proselflc", name, *words, "[OPTIONS]"])
        parts = [f"## {name}", f"    {usage}", *map(_escaped, re.split(r"\n\s*\n", text))]
        if own:
            parts.append(_options(own))
        if any(one.keys[0] == "recipe" for one in others):
            parts.append("and every option of the [configuration](configuration.md).")
        elif others:
            parts.append(f"and those that say {DATA}.")
        sections.append("\n\n".join(parts))
    head = (
        "# Commands\n\n`proselflc COMMAND --help` shows the same text. Exit codes: 0 success, 2 "
        "wrong input, 1 a failed run or a bug, 130 interrupted. `--json` prints a "
        "machine-readable result on stdout; everything else goes to stderr."
    )
    return "\n\n".join([head, *sections])


def configuration() -> str:
    """Return the page of the options of a run, which are keys of a TOML file too, and recipes."""
    parts: dict[str, list[Any]] = {one: [] for one in PARTS}
    for argument in _arguments("train"):
        if argument.keys and not argument.name.startswith("--method."):
            first = argument.keys[0]
            parts[first if first in PARTS else ""].append(argument)
    sections = [f"## {PARTS[key]}\n\n{_options(found)}" for key, found in parts.items()]
    files = [
        f"### {name}\n\n```toml\n{path.read_text(encoding='utf-8').strip()}\n```"
        for name, path in recipes().items()
    ]
    head = (
        "# Configuration\n\nEvery option of `train` and `search` is also a key of a TOML file, "
        "without its dashes: `--batch-size 64` is `batch-size = 64`. Parameters of the method are "
        'a table: `--method boot_soft --method.epsilon 0.3` is `method = { name = "boot_soft", '
        "epsilon = 0.3 }`. `--config FILE` reads it. Flags override the file, which overrides "
        "defaults. Every run saves all options in its `config.toml`."
    )
    own = (
        "## The method's own parameters\n\nThese are `--method.NAME` and depend on the "
        "method: see [all methods](methods.md), `proselflc methods NAME` or "
        "`proselflc train --method NAME --help`."
    )
    recipe = "## Recipes\n\nThese come with the package; name one as in `--config cifar100`."
    return "\n\n".join([head, *sections, own, recipe, *files])


def python() -> str:
    """Return the page of public names."""
    groups: dict[str, list[str]] = {
        "Whole runs": [],
        "Criteria": [],
        "Targets, references, trusts and memories": [],
        "Data": [],
        "Errors": [],
        "For other libraries": [],
    }
    for name in proselflc.__all__:
        if name == "functional":
            continue
        home = proselflc._HOME[name]
        if home == "correction.criteria" or name == "Criterion":
            groups["Criteria"].append(name)
        elif home.startswith("correction."):
            groups["Targets, references, trusts and memories"].append(name)
        elif home.startswith("data."):
            groups["Data"].append(name)
        elif name.endswith("Error"):
            groups["Errors"].append(name)
        elif home.startswith("integrations"):
            groups["For other libraries"].append(name)
        else:
            groups["Whole runs"].append(name)
    sections = [
        f"## {title}\n\n" + "\n\n".join(map(_documented, names))
        for title, names in groups.items()
        if names
    ]
    return "\n\n".join(
        [
            "# Python names",
            "All of these are names of `proselflc`, and loaded when they are first used. The "
            "criteria need torch alone.",
            *sections,
            "## Without state\n\n`proselflc.functional` has the same maths as functions.\n\n"
            + "\n\n".join(
                _directive("autofunction", f"proselflc.functional.{name}")
                for name in functional.__all__
            ),
        ]
    )


def _documented(name: str) -> str:
    one = getattr(proselflc, name)
    kind = "autoclass" if isinstance(one, type) else "autofunction"
    if kind == "autoclass" and issubclass(one, Exception):
        kind = "autoexception"
    return _directive(kind, f"proselflc.{name}")


def _directive(kind: str, name: str) -> str:
    members = "\n   :members:" if kind == "autoclass" else ""
    return f"```{{eval-rst}}\n.. {kind}:: {name}{members}\n```"


def _of_the_repository(name: str) -> str:
    """Return a page of the repository with links that work in docs/reference/."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = text.replace("](docs/decisions/)", "](../decisions/index.md)").replace(
        "](docs/", "](../"
    )
    return text.replace("](CHANGELOG.md)", "](changelog.md)")


def _arguments(command: str) -> list[Any]:
    """Return the visible options and operands of a command."""
    found = app[command].assemble_argument_collection(parse_docstring=True)
    return [one for one in found if one.show]


def _has_place(argument: Any) -> bool:
    return not argument.name.startswith("-")


def _options(arguments: Iterable[Any]) -> str:
    rows = []
    for one in arguments:
        default = one.field_info.default
        unset = default in (None, False, "", ()) or not isinstance(default, object)
        shown = "" if unset or default is one.field_info.empty else f"`{default}`"
        choices = [repr(v).strip("'") for v in get_args(one.hint) if isinstance(v, str)]
        for inner in get_args(one.hint):
            choices += [str(v) for v in get_args(inner) if isinstance(v, str)]
        listed = f" One of {', '.join(f'`{v}`' for v in choices)}." if choices else ""
        rows.append((f"`{one.name}`", _escaped(one.parameter.help or "") + listed, shown))
    return _table(("option", "meaning", "default"), rows)


def _without_arguments(help: str) -> str:
    return re.split(r"\n\s*Args:", help)[0].strip()


def _escaped(text: str) -> str:
    """Return the prose of a docstring as Markdown, with stars and bars escaped."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*|<_\[\]])", r"\\\1", piece)
        for piece in pieces
    )


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(
        "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in line) + " |"
        for line in lines
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
