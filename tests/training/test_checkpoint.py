"""States on disk: the last two, whole, and damaged ones told from good ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from proselflc.errors import InputError
from proselflc.training import checkpoint
from proselflc.training.checkpoint import State


def state(step: int) -> State:
    tensors = {
        "model.w": torch.full((2, 3), float(step)),
        "model.t": torch.tensor(step),
        "recorder.rows": torch.arange(5, dtype=torch.uint8),
        "mean": torch.full((2,), 0.5, dtype=torch.float16),
    }
    return State(step, tensors, {"seconds": 0.1 + step, "scaler": None, "list": [1, "ä"]})


def assert_equal(one: State | None, other: State) -> None:
    assert one is not None
    assert (one.step, one.facts) == (other.step, other.facts)
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name])


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "checkpoints", state(3))
    found, notes = checkpoint.read_last(tmp_path / "checkpoints")
    assert_equal(found, state(3))
    assert notes == []


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    paths = [checkpoint.write(tmp_path, state(step)) for step in (1, 9, 10, 200)]
    assert sorted(tmp_path.iterdir()) == paths[2:]
    assert_equal(checkpoint.read_last(tmp_path)[0], state(200))


def test_there_may_be_none(tmp_path: Path) -> None:
    assert checkpoint.read_last(tmp_path / "nowhere") == (None, [])
    (tmp_path / ".0123456789abcdef.part").write_bytes(b"half")
    (tmp_path / "notes.safetensors").write_bytes(b"mine")
    assert checkpoint.read_last(tmp_path) == (None, [])
    assert checkpoint.can_go_on(tmp_path)


@settings(max_examples=40, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_any_damage_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, where: float, bit: int, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    checkpoint.write(folder, state(1))
    newest = checkpoint.write(folder, state(2))
    content = bytearray(newest.read_bytes())
    position = int(where * len(content))
    content[position] ^= 1 << bit
    newest.write_bytes(content[:position] if cut else content)
    found, notes = checkpoint.read_last(folder)
    assert_equal(found, state(1))
    assert len(notes) == 1
    assert notes[0].startswith(f"the checkpoint {newest.name} is damaged and is not used: ")


def test_all_of_them_may_be_damaged(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint.write(tmp_path, state(step)).write_bytes(b"")
    found, notes = checkpoint.read_last(tmp_path)
    assert found is None
    assert len(notes) == 2
    assert not checkpoint.can_go_on(tmp_path)
    checkpoint.write(tmp_path, state(1))
    assert checkpoint.can_go_on(tmp_path)


def test_a_name_that_promises_another_content_is_no_state(tmp_path: Path) -> None:
    """The right digest of something that is no safetensors file."""
    import hashlib

    digest = hashlib.blake2b(b"nonsense", digest_size=16).hexdigest()
    (tmp_path / f"0000000007-{digest}.safetensors").write_bytes(b"nonsense")
    found, notes = checkpoint.read_last(tmp_path)
    assert found is None
    assert len(notes) == 1


def test_what_cannot_be_written_leaves_the_states_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        checkpoint.write(tmp_path, state(step))
    before = sorted(tmp_path.iterdir())

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proselflc.files.regular.os.fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        checkpoint.write(tmp_path, state(3))
    assert sorted(tmp_path.iterdir()) == before
    assert_equal(checkpoint.read_last(tmp_path)[0], state(2))


def test_tied_weights_are_written_twice(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    tensors: dict[str, Tensor] = {"a": shared, "b": shared, "c": shared.view(2, 3).t()}
    path = checkpoint.write(tmp_path, State(1, tensors, {}))
    found = load_file(path)
    assert torch.equal(found["a"], found["b"])
    assert torch.equal(found["c"], shared.view(2, 3).t())


def test_parts_have_prefixes() -> None:
    tensors = {"w": torch.ones(1), "a.b": torch.zeros(1)}
    assert checkpoint.part(checkpoint.named("model", tensors), "model") == tensors
    assert checkpoint.part({"models.w": torch.ones(1)}, "model") == {}


def test_no_pickle_is_written(tmp_path: Path) -> None:
    content = checkpoint.write(tmp_path, state(1)).read_bytes()
    assert load_file(next(tmp_path.iterdir())).keys() == state(1).tensors.keys()
    assert not content.startswith((b"PK", b"\x80"))
