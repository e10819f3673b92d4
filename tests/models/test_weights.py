"""Weights from files: read without running code, loaded strictly, but for another head."""

import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.errors import InputError
from proselflc.models.factory import words
from proselflc.models.networks import resnet18
from proselflc.models.weights import load_pretrained, load_strictly, read_state

SOMEWHERE = Path("file.pt")


def network(num_classes: int = 3, *, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            body=nn.Linear(4, 5), norm=nn.BatchNorm1d(5), head=nn.Linear(5, num_classes, bias=bias)
        )
    )


def filled(module: nn.Module, value: float) -> dict[str, Tensor]:
    return {name: torch.full_like(v, value) for name, v in module.state_dict().items()}


STATE = {"body.weight": torch.arange(6.0).reshape(2, 3), "body.bias": torch.tensor([1.0, 2.0])}


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {"state_dict": STATE, "epoch": 3},
        {"model": STATE, "optimizer": {"lr": 0.1}},
        {"state_dict": {"model": STATE}, "args": [1]},
        {f"module.{name}": value for name, value in STATE.items()},
        {"state_dict": {f"module.{name}": value for name, value in STATE.items()}},
    ],
    ids=["plain", "state_dict", "model", "both", "module.", "state_dict and module."],
)
def test_wrappers_and_prefixes_are_taken_off(tmp_path: Path, content: dict[str, object]) -> None:
    torch.save(content, tmp_path / "w.pt")
    state = read_state(tmp_path / "w.pt")
    assert list(state) == list(STATE)
    for name, value in STATE.items():
        assert torch.equal(state[name], value)


def test_safetensors(tmp_path: Path) -> None:
    save_file({f"module.{name}": v for name, v in STATE.items()}, tmp_path / "w.safetensors")
    state = read_state(tmp_path / "w.safetensors")
    assert state.keys() == STATE.keys()
    assert all(torch.equal(state[name], value) for name, value in STATE.items())


def test_a_prefix_that_not_all_have_stays(tmp_path: Path) -> None:
    mixed = {"module.a": torch.zeros(1), "b": torch.zeros(1)}
    torch.save(mixed, tmp_path / "w.pt")
    assert read_state(tmp_path / "w.pt").keys() == mixed.keys()


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("ran"),))


def test_code_is_not_run_nor_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"scale": Hostile()}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="it is damaged, or holds more than tensors") as caught:
        read_state(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()
    assert "weights_only" not in str(caught.value)


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1_000_000)}, tmp_path / "plain.pt")
    packed = tmp_path / "packed.pt"
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
    assert packed.stat().st_size < 100_000
    with pytest.raises(InputError, match="compressed archive"):
        read_state(packed)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"rubbish" * 9, b"\xff" * 40, b"PK\x03\x04"])
def test_broken_files_are_refused_in_a_sentence(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read weights from .*; expected a safetensors"):
        read_state(path)


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {1: torch.zeros(1)}, torch.zeros(2)])
def test_files_of_something_else_are_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match="does not hold a state dict: expected names"):
        read_state(tmp_path / "w.pt")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no weights file .*no\.pt"):
        read_state(tmp_path / "no.pt")


def test_all_that_fits_is_loaded() -> None:
    module = network()
    load_strictly(module, filled(module, 2.0), SOMEWHERE)
    for value in module.state_dict().values():
        assert value.eq(2).all()


def test_what_does_not_fit_is_named_in_one_sentence() -> None:
    module = network()
    state = filled(module, 0.0)
    del state["body.weight"]
    state["head.bias"] = torch.zeros(7)
    state |= {f"extra.{i}": torch.zeros(1) for i in range(5)}
    with pytest.raises(InputError) as caught:
        load_strictly(module, state, SOMEWHERE)
    assert str(caught.value) == (
        "the weights in file.pt do not fit the model: missing: body.weight; "
        "not in the model: extra.0, extra.1, extra.2 and 2 more; "
        "of another shape: head.bias is [7] instead of [3]"
    )


def test_files_from_before_batches_were_counted_fit() -> None:
    module = network()
    state = {n: v for n, v in filled(module, 1.0).items() if "num_batches" not in n}
    load_strictly(module, state, SOMEWHERE)
    assert module.state_dict()["norm.weight"].eq(1).all()
    del state["norm.bias"]
    with pytest.raises(InputError, match=r"missing: norm\.bias$"):
        load_strictly(module, state, SOMEWHERE)


@pytest.mark.parametrize("bias", [False, True])
def test_a_head_for_other_classes_stays_as_it_is(bias: bool) -> None:
    module = network(3, bias=bias)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    left = load_pretrained(module, filled(network(1000, bias=bias), 2.0), SOMEWHERE)
    assert left == (("head.weight", "head.bias") if bias else ("head.weight",))
    for name, value in module.state_dict().items():
        if name in left:
            assert torch.equal(value, before[name])
        else:
            assert value.eq(2).all()


def test_a_head_for_as_many_classes_is_loaded() -> None:
    module = network()
    assert load_pretrained(module, filled(module, 2.0), SOMEWHERE) == ()
    assert module.state_dict()["head.weight"].eq(2).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.weight": torch.zeros(9, 5)}, r"head\.weight is \[9, 5\] instead of \[3, 5\]$"),
        (
            {"head.weight": torch.zeros(9, 5), "head.bias": torch.zeros(8)},
            r"head\.weight is .*, head\.bias is \[8\] instead of \[3\]$",
        ),
        (
            {"head.weight": torch.zeros(9, 6), "head.bias": torch.zeros(9)},
            r"head\.weight is \[9, 6\]",
        ),
        ({"head.bias": torch.tensor(1.0)}, "do not fit"),
        ({"body.weight": torch.zeros(6, 4)}, r"body\.weight is \[6, 4\] instead of \[5, 4\]$"),
        ({"new": torch.zeros(1)}, "not in the model: new$"),
    ],
)
def test_all_else_must_fit(change: dict[str, Tensor], message: str) -> None:
    module = network()
    with pytest.raises(InputError, match=message):
        load_pretrained(module, filled(module, 0.0) | change, SOMEWHERE)


def test_a_missing_head_is_a_mismatch() -> None:
    module = network()
    state = {n: v for n, v in filled(module, 0.0).items() if not n.startswith("head")}
    with pytest.raises(InputError, match=r"missing: head\.weight, head\.bias$"):
        load_pretrained(module, state, SOMEWHERE)


def test_a_last_layer_that_gives_no_classes_must_fit() -> None:
    module, larger = (nn.Sequential(nn.Linear(4, n), nn.BatchNorm1d(n)) for n in (5, 6))
    with pytest.raises(InputError, match=r"0\.weight is \[6, 4\] instead of \[5, 4\]"):
        load_pretrained(module, filled(larger, 0.0), SOMEWHERE)


def test_a_network_that_is_one_layer_has_it_as_its_head() -> None:
    module = nn.Linear(4, 2)
    assert load_pretrained(module, filled(nn.Linear(4, 3), 0.0), SOMEWHERE) == ("weight", "bias")


def test_a_lazy_network_takes_the_shapes_of_the_file() -> None:
    module = nn.Sequential(nn.LazyLinear(3))
    state = filled(nn.Sequential(nn.Linear(7, 3)), 1.0)
    assert load_pretrained(module, state, SOMEWHERE) == ()
    assert_close(module(torch.ones(1, 7)), torch.full((1, 3), 8.0))


def test_imagenet_weights_start_a_resnet_for_fourteen_classes(tmp_path: Path) -> None:
    """As Clothing1M wants it: a file for 1000 classes, without counts of batches, as published."""
    torch.manual_seed(0)
    trained = resnet18(3, 1000)
    state = {n: v for n, v in trained.state_dict().items() if "num_batches" not in n}
    torch.save(state, tmp_path / "resnet18.pth")
    model = resnet18(3, 14)
    left = load_pretrained(model, read_state(tmp_path / "resnet18.pth"), tmp_path)
    assert left == ("fc.weight", "fc.bias")
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in state if name not in left)
    grey = resnet18(1, 14)
    with pytest.raises(InputError, match=r"conv1\.weight is \[64, 3, 7, 7\] instead of \[64, 1"):
        load_pretrained(grey, read_state(tmp_path / "resnet18.pth"), tmp_path)


def test_words_of_an_error_are_one_short_line() -> None:
    assert words(ValueError("a\n  b\tc")) == "a b c"
    assert len(words(ValueError("x" * 1000))) == 300
    assert words(KeyError()) == "KeyError"
