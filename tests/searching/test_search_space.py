"""What may be chosen: written, read, defaulted, refused."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution as Values
from optuna.distributions import FloatDistribution, IntDistribution

from proselflc import methods
from proselflc.data.inputs import Features
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.run.config import Config
from proselflc.searching import search_space
from proselflc.searching.search_space import Space
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext

RESOLVED = Config(recipe=Recipe(epochs=30, batch_size=64, optimizer="sgd", lr=0.05, weight_decay=0))


def read(
    *words: str, names: tuple[str, ...] = ("proselflc",), asked: Config | None = None
) -> Space:
    return search_space.read(words, names, asked or Config(), RESOLVED)


def test_the_grids_of_the_paper_are_the_default() -> None:
    names = ("label_smoothing", "confidence_penalty", "boot_soft", "proselflc", "cce")
    space = read(names=names)
    for name in names[:3]:
        assert space.methods[name] == {"epsilon": Values((0.125, 0.25, 0.5))}
    assert space.methods["proselflc"] == {"sharpness": Values((8.0, 10.0, 12.0, 14.0, 16.0))}
    assert space.methods["cce"] == {}
    assert space.recipe == {
        "epochs": Values((15, 30, 60)),
        "lr": Values((0.017, 0.05, 0.15)),
    }


def test_every_method_that_can_be_searched_has_a_default_and_takes_it() -> None:
    for name, one in methods.every().items():
        takes, choices = set(one.takes) - set(one.paths), one.grid
        assert set(choices) <= takes
        if one.learns_trusted:
            assert not choices
            continue
        assert bool(choices) == bool(takes)  # what has something to search has something by default
        for parameter, values in choices.items():
            assert len(set(values)) == len(values) > 1
            default = getattr(one.parameters, parameter)
            assert default in values or name in FROM_THE_PAPER


@pytest.mark.parametrize("name", sorted(set(methods.names()) - {"distillation", "pseudo_label"}))
def test_a_method_can_do_with_its_defaults_and_the_shortest_training(name: str) -> None:
    X = Features(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
    names, coarse = ("a", "b", "c", "d"), np.array([0, 0, 1, 1])
    context = RunContext(900, 30, np.arange(40) % 4, names, fit(X), coarse=coarse)
    search_space.check(read(names=(name,)), RESOLVED, context)
    short = read("epochs=1..4", names=(name,))
    stages = methods.strategy(name, methods.resolved(name, {}), context).stages
    if len(stages) == 1:
        search_space.check(short, RESOLVED, context)
    else:
        with pytest.raises(InputError, match="needs an epoch for each, got 1"):
            search_space.check(short, RESOLVED, context)


FROM_THE_PAPER = ("boot_hard",)  # its ε is of another publication, the grid of Table 5


def test_what_is_fixed_is_not_searched() -> None:
    asked = Config(recipe=Recipe(steps=100), parameters=dict(sharpness=11.0))
    space = read(asked=asked)
    assert set(space.recipe) == {"lr"}
    assert space.methods["proselflc"] == {}
    asked = Config(recipe=Recipe(epochs=3, lr=0.1))
    assert read(asked=asked).recipe == {}


def test_values_and_ranges_are_read() -> None:
    space = read(
        *("epochs=10,20", "lr=0.001..1:log", "batch-size=16..64", "optimizer=sgd,adamw"),
        *("sharpness=4..20", "trust=global,local", "momentum=0.5..0.9"),
    )
    assert space.recipe == {
        "epochs": Values((10, 20)),
        "lr": FloatDistribution(0.001, 1.0, log=True),
        "batch_size": IntDistribution(16, 64),
        "optimizer": Values(("sgd", "adamw")),
        "momentum": FloatDistribution(0.5, 0.9),
    }
    assert space.methods["proselflc"] == {
        "sharpness": FloatDistribution(4.0, 20.0),
        "trust": Values(("global", "local")),
    }
    assert search_space.grid(space.recipe) is None


def test_what_is_written_is_read_back() -> None:
    names = ("boot_soft", "proselflc")
    space = read("lr=0.001..1:log", "epochs=3,5", "boot_soft.epsilon=0.1", names=names)
    again = read(*space.words(), names=names, asked=Config(recipe=Recipe(epochs=1, lr=1.0)))
    assert again == space
    assert again.methods["proselflc"] == {"sharpness": Values((8.0, 10.0, 12.0, 14.0, 16.0))}


def test_a_parameter_is_of_every_method_that_takes_it_unless_one_is_named() -> None:
    names = ("boot_soft", "label_smoothing", "cce")
    space = read("epsilon=0.1,0.3", "boot_soft.epsilon=0.7", names=names)
    assert space.methods["label_smoothing"] == {"epsilon": Values((0.1, 0.3))}
    assert space.methods["boot_soft"] == {"epsilon": Values((0.7,))}
    assert space.methods["cce"] == {}


def test_a_grid_has_every_combination_once_in_order() -> None:
    choices = {"a": Values((1, 2)), "b": Values(("x", "y", "z"))}
    expected = [{"a": a, "b": b} for a, b in itertools.product((1, 2), "xyz")]
    assert search_space.grid(choices) == expected
    assert search_space.grid({}) == [{}]


def test_applied_replaces_what_was_chosen_and_nothing_else() -> None:
    config = replace(RESOLVED, parameters=dict(midpoint=0.4))
    found = search_space.applied(config, "proselflc", {"steps": 70, "lr": 0.2}, {"sharpness": 9.0})
    assert found.recipe == replace(config.recipe, epochs=None, steps=70, lr=0.2)
    assert found.parameters == dict(sharpness=9.0, midpoint=0.4, trust="global*local")
    plain = search_space.applied(config, "cce", {}, {})
    assert (plain.method, plain.parameters) == ("cce", {})


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("lr", "has no values"),
        ("lr=", "has no values"),
        ("rate=0.1", 'unknown name "rate"'),
        ("epsilon=0.1", 'unknown name "epsilon"'),
        ("boot_soft.sharpness=1", 'unknown name "boot_soft.sharpness"'),
        ("teacher=a,b", 'unknown name "teacher"'),
        ("lr=fast", "fast is not a number"),
        ("lr=nan", "nan is not a finite number"),
        ("epochs=1.5", "1.5 is not a whole number"),
        ("lr=0.1,0.1", "distinct values"),
        ("lr=0.1,,0.2", "distinct values"),
        ("lr=1..0.1", "a range is written like"),
        ("lr=0..1:log", "a range is written like"),
        ("lr=0.1..1:exp", "a range is written like"),
        ("optimizer=lion", 'unknown value "lion"'),
    ],
)
def test_what_cannot_be_read_is_said(word: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)) as caught:
        read(word)
    assert word in str(caught.value)


def test_epochs_and_steps_are_the_same_thing() -> None:
    with pytest.raises(InputError, match="both epochs and steps"):
        read("epochs=1,2", "steps=10,20")
