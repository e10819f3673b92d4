"""Embedding: models by name, their weights, what they give, what is written."""

import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from proselflc.cli import embedding
from proselflc.cli.data import EmbedOptions
from proselflc.cli.embedding import embeddings
from proselflc.data.dataset import Part
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.pretrained.local_models import Embedder, load_embedder

MODULE = """
import torch
from torch import nn


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x.mean((2, 3)) * self.scale)


def needs(argument):
    return Channels()


def fails():
    raise OSError("no such luck")


number = 3
"""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a module of the user's, which is the current one."""
    (tmp_path / "own_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_model", None)


def ids(n: int) -> tuple[str, ...]:
    return tuple(map(str, range(n)))


def image_part(n: int = 7, channels: int = 3, size: int = 8) -> Part:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (n, size, size, channels), dtype=np.uint8)
    return Part(Images(pixels), np.zeros(n, np.int64), ids(n))


class Means(nn.Module):
    """[N, 3, h, w] to the mean of every channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def test_rows_are_the_examples_in_order_in_evaluation_mode(here: Path) -> None:
    part = image_part()
    embedder = load_embedder("own_model:Channels")
    assert embedder.module.training
    result = embeddings(part, embedder, batch_size=3, size=8)
    assert isinstance(part.inputs, Images)
    scaled = part.inputs.pixels / 255
    expected = (scaled - np.array(embedder.mean)) / np.array(embedder.std)
    np.testing.assert_allclose(result, expected.mean((1, 2)), atol=1e-5)
    assert result.dtype == np.float32
    assert not embedder.module.training
    assert str(here) not in sys.path


def test_grey_images_become_three_channels_and_are_resized() -> None:
    part = image_part(channels=1)
    seen: list[tuple[int, ...]] = []

    class Look(Means):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(tuple(x.shape))
            return super().forward(x)

    result = embeddings(part, Embedder(Look(), (0.5,) * 3, (0.5,) * 3), batch_size=5, size=16)
    assert seen == [(5, 3, 16, 16), (2, 3, 16, 16)]
    np.testing.assert_allclose(result[:, 0], result[:, 2], atol=1e-6)


def test_files_are_warped_to_the_size(tmp_path: Path) -> None:
    for i in range(3):
        Image.new("RGB", (30 + i, 20), (50 * i, 100, 0)).save(tmp_path / f"{i}.png")
    files = Part(
        ImageFiles(tuple(tmp_path / f"{i}.png" for i in range(3))), np.zeros(3, np.int64), ids(3)
    )
    result = embeddings(
        files, Embedder(Means(), (0.0,) * 3, (1.0,) * 3), batch_size=2, size=16, workers=0
    )
    expected = [[50 * i / 255, 100 / 255, 0] for i in range(3)]
    np.testing.assert_allclose(result, expected, atol=1e-6)
    (tmp_path / "1.png").write_bytes(b"broken")
    with pytest.raises(InputError, match='cannot read the image "1"'):
        embeddings(files, Embedder(Means()), workers=0)


def test_features_pass_through() -> None:
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    part = Part(Features(values), np.zeros(5, np.int64), ids(5))
    result = embeddings(part, Embedder(nn.Flatten()), batch_size=2)
    assert np.array_equal(result, values)


class Words(nn.Module):
    """The length of every text, by way of tokens and a mask."""

    def tokenize(self, texts: list[str]) -> Mapping[str, Tensor]:
        longest = max(len(t.split()) for t in texts)
        ids = torch.zeros(len(texts), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(texts):
            lengths = [len(word) for word in text.split()]
            ids[row, : len(lengths)] = torch.tensor(lengths)
            mask[row, : len(lengths)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        padded = torch.where(attention_mask > 0, input_ids, 99).float()
        return SimpleNamespace(last_hidden_state=padded[:, :, None], pooler_output=None)


def test_texts_go_through_the_models_tokenizer_and_padding_does_not_count() -> None:
    part = Part(Texts(("a bb ccc", "dddd", "ee ffff")), np.zeros(3, np.int64), ids(3))
    words = Words()
    result = embeddings(part, Embedder(words, tokenize=words.tokenize), batch_size=2)
    assert result.tolist() == [[2.0], [4.0], [3.0]]
    with pytest.raises(InputError, match="does not take texts"):
        embeddings(part, Embedder(Means()))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (lambda x: x.mean((2, 3)), None),
        (lambda x: x, None),
        (lambda x: x.flatten(2).transpose(1, 2), None),
        (lambda x: SimpleNamespace(pooler_output=x.mean((2, 3), keepdim=True)), None),
        (lambda x: SimpleNamespace(last_hidden_state=x.flatten(2).transpose(1, 2)), None),
        (lambda x: x.mean((2, 3)).to(torch.bfloat16).float(), "rough"),
    ],
)
def test_every_usual_kind_of_output_is_pooled(output: object, expected: str | None) -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> object:
            assert callable(output)
            return output(x)

    plain = embeddings(image_part(), Embedder(Means()), size=8)
    tolerance = 1e-5 if expected is None else 1e-2
    np.testing.assert_allclose(
        embeddings(image_part(), Embedder(Module()), size=8), plain, atol=tolerance
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: (x,), "neither a tensor nor"),
        (lambda x: x.mean(), r"returned \[\] for a batch of 7, expected \[7, D\]"),
        (lambda x: x.mean((2, 3))[:3], r"returned \[3, 3\] for a batch of 7"),
        (lambda x: x.mean((2, 3)) * float("nan"), "NaN or infinite"),
        (lambda x: x @ torch.zeros(3, 3), "the model failed on a batch of 7: RuntimeError"),
    ],
)
def test_other_outputs_are_refused_in_a_sentence(output: object, message: str) -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> object:
            assert callable(output)
            return output(x)

    with pytest.raises(InputError, match=message) as caught:
        embeddings(image_part(), Embedder(Module()), size=8)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("resnet50", "must be package.module:factory"),
        (":x", "must be package"),
        ("own_model:", "must be package"),
        ("not_there:x", "No module named 'not_there'"),
        ("own_model:missing", "no attribute 'missing'"),
        ("own_model:needs", "missing 1 required positional argument"),
        ("own_model:fails", "OSError: no such luck"),
        ("own_model:number", "not callable"),
        ("collections:OrderedDict", "gave OrderedDict, expected an nn.Module"),
        ("hf:nowhere", "has no config.json"),
    ],
)
def test_models_that_cannot_be_made_are_refused(here: Path, model: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_embedder(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_are_loaded_strictly(here: Path, suffix: str, wrapped: bool) -> None:
    path = here / f"weights{suffix}"
    state = {"scale": torch.tensor([1.0, 2.0, 3.0])}
    if suffix == ".pt":
        torch.save({"state_dict": state, "epoch": 3} if wrapped else state, path)
    else:
        save_file(state, path)
    loaded = load_embedder("own_model:Channels", weights=path).module.state_dict()
    assert loaded["scale"].tolist() == [1.0, 2.0, 3.0]

    other = {**state, "head": torch.zeros(2)}
    if suffix == ".pt":
        torch.save(other, path)
    else:
        save_file(other, path)
    with pytest.raises(InputError, match="do not fit the model") as caught:
        load_embedder("own_model:Channels", weights=path)
    assert "\n" not in str(caught.value)


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("ran"),))


def test_weights_cannot_run_code(here: Path) -> None:
    torch.save({"scale": Hostile()}, here / "hostile.pt")
    with pytest.raises(InputError, match="cannot read weights"):
        load_embedder("own_model:Channels", weights=here / "hostile.pt")
    assert not (here / "ran").exists()


@pytest.mark.parametrize(
    ("content", "suffix"),
    [(b"", ".pt"), (b"rubbish" * 9, ".pt"), (b"\xff" * 40, ".safetensors"), (b"", ".safetensors")],
)
def test_broken_weights_are_refused(here: Path, content: bytes, suffix: str) -> None:
    path = here / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot read weights from") as caught:
        load_embedder("own_model:Channels", weights=path)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no weights file"):
        load_embedder("own_model:Channels", weights=here / "missing.pt")
    torch.save([1, 2], here / "list.pt")
    with pytest.raises(InputError, match="does not hold a state dict"):
        load_embedder("own_model:Channels", weights=here / "list.pt")


class FakeTimm(nn.Module):
    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.head: nn.Module = nn.Linear(3, num_classes)
        self.pretrained_cfg = {"classifier": "head", "mean": (0.1, 0.2, 0.3), "std": (0.5,) * 3}

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.mean((2, 3)))
        return out

    def reset_classifier(self, num_classes: int) -> None:
        assert num_classes == 0
        self.head = nn.Identity()


def test_timm_takes_its_head_off_after_its_weights_went_in(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in: the real one cannot be imported everywhere."""
    timm = types.ModuleType("timm")
    timm.is_model = lambda name: name == "tiny"  # type: ignore[attr-defined]
    timm.list_models = lambda: ["tiny"]  # type: ignore[attr-defined]
    timm.create_model = lambda name, pretrained, **options: FakeTimm(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    torch.save(FakeTimm(7).state_dict(), here / "w.pt")
    embedder = load_embedder("timm:tiny", weights=here / "w.pt")
    assert embedder.mean == (0.1, 0.2, 0.3)
    assert embeddings(image_part(), embedder, size=8).shape == (7, 3)
    with pytest.raises(InputError, match='timm has no model "tinny"; did you mean "tiny"'):
        load_embedder("timm:tinny", weights=here / "w.pt")
    # Without a file, the one that timm itself has downloaded is used.
    config = types.SimpleNamespace(hf_hub_id="timm/tiny")
    timm.get_pretrained_cfg = lambda name: config  # type: ignore[attr-defined]
    cached: list[str | None] = [str(here / "w.pt"), None]
    hub = types.ModuleType("huggingface_hub")
    hub.try_to_load_from_cache = lambda repository, file: cached.pop(0)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert embeddings(image_part(), load_embedder("timm:tiny"), size=8).shape == (7, 3)
    with pytest.raises(InputError, match="of timm:tiny are not in the local cache"):
        load_embedder("timm:tiny")
    torch.save({"other": torch.zeros(1)}, here / "w.pt")
    with pytest.raises(InputError, match="do not fit"):
        load_embedder("timm:tiny", weights=here / "w.pt")


@pytest.mark.parametrize(("name", "extra"), [("timm", "timm"), ("transformers", "hf")])
def test_a_missing_library_names_its_extra(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    (here / "config.json").write_text("{}")
    torch.save({}, here / "w.pt")
    model, weights = ("timm:tiny", here / "w.pt") if name == "timm" else (f"hf:{here}", None)
    with pytest.raises(InputError, match=rf"proselflc\[{extra}\]"):
        load_embedder(model, weights=weights)


def test_hugging_face_images(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    model = transformers.ViTModel(config)
    model.save_pretrained(tmp_path)
    capfd.readouterr()
    processor = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    embedder = load_embedder(f"hf:{tmp_path}")
    assert capfd.readouterr().err == ""  # no bar for weights that are here already
    part = image_part(size=16)
    assert isinstance(part.inputs, Images)
    x = torch.from_numpy((part.inputs.pixels / 255 - 0.5) / 0.25).float().permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = model.eval()(x).pooler_output.numpy()
    np.testing.assert_allclose(embeddings(part, embedder, size=16), expected, atol=1e-5)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot load the model"):
        load_embedder(f"hf:{tmp_path}")


# The command as a whole, on data in a file.


@pytest.fixture
def data(here: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(
        here / "data.npz",
        x=rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8),
        y=np.arange(6) % 2,
        x_test=rng.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8),
        y_test=np.arange(3) % 2,
    )
    return here / "data.npz"


def embed(request: Request, **options: Any) -> dict[str, object]:
    return embedding.embed(request, EmbedOptions(**options))


def test_embed_writes_what_features_reads(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from proselflc.data.opening import open_data

    for name in ("emb.npz", "emb.npy"):
        out = data.parent / name
        done = embed(
            Request(data=str(data)), model="own_model:Channels", out=out, batch_size=4, size=8
        )
        assert done == {"out": str(out), "rows": {"x": 6, "x_test": 3}, "dimensions": 3}
        dataset = open_data(Request(data=str(data), features=out))
        plain = open_data(Request(data=str(data)))
        embedder = load_embedder("own_model:Channels")
        assert isinstance(dataset.train.inputs, Features)
        assert dataset.test is not None
        assert plain.test is not None
        assert isinstance(dataset.test.inputs, Features)
        assert np.array_equal(
            dataset.train.inputs.values, embeddings(plain.train, embedder, batch_size=4, size=8)
        )
        assert np.array_equal(
            dataset.test.inputs.values, embeddings(plain.test, embedder, batch_size=4, size=8)
        )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "embedded 6 of 6" in captured.err


def test_nothing_is_left_behind_when_it_fails(data: Path) -> None:
    before = sorted(path.name for path in data.parent.iterdir() if path.suffix != "")
    with pytest.raises(InputError):
        embed(
            Request(data=str(data)),
            model="torch.nn:Identity",
            out=data.parent / "e.npz",
            weights=data,
        )
    with pytest.raises(InputError, match="exists: choose another name"):
        embed(Request(data=str(data)), model="torch.nn:Identity", out=data)
    with pytest.raises(InputError, match=r"must end in \.npy, \.npz"):
        embed(Request(data=str(data)), model="torch.nn:Identity", out=data.parent / "e.csv")
    with pytest.raises(InputError, match="no folder"):
        embed(Request(data=str(data)), model="torch.nn:Identity", out=data.parent / "no" / "e.npy")
    with pytest.raises(InputError, match="at least 1"):
        embed(
            Request(data=str(data)),
            model="torch.nn:Identity",
            out=data.parent / "e.npy",
            batch_size=0,
        )
    after = sorted(path.name for path in data.parent.iterdir() if path.suffix != "")
    assert after == before
