"""A tiny transformer in Hugging Face's Trainer, on sentences a fifth of whose labels are wrong.

Whether a sentence states something or asks hangs on the order of its words, which is what a
transformer is for: "the soup was warm", "was the soup warm". It is built from a configuration and
learns from nothing, so nothing is downloaded. `ProSelfLC` takes the place of the Trainer's loss,
and a recording of what it learns says at the end which labels are wrong.

    python examples/huggingface_text.py [FOLDER]
"""

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import proselflc
from proselflc.integrations import huggingface

NAMES = ("complaint", "praise", "question")
THINGS = ("soup", "room", "film", "train", "book", "talk", "coffee", "hotel", "song", "walk")
WORDS = ("good", "lovely", "warm", "great", "fine", "quick", "clean", "calm", "new", "bright")
WRONG = 0.2
EPOCHS = 10


def sentences(size: int) -> tuple[list[str], list[int], list[int]]:
    """Sentences, their labels as given, and as they should be."""
    chance = random.Random(0)
    texts, given, right = [], [], []
    for _ in range(size):
        thing, label = chance.choice(THINGS), int(chance.random() < 0.5)
        word = ("" if label else "not ") + chance.choice(WORDS)
        text = f"the {thing} was {word}"
        if chance.random() < 1 / 3:
            label, text = 2, f"was the {thing} {word}"
        texts.append(text)
        right.append(label)
        wrong = chance.random() < WRONG
        given.append((label + chance.randint(1, 2)) % 3 if wrong else label)
    return texts, given, right


def encoded(texts: list[str], labels: list[int]) -> list[dict[str, Any]]:
    """Words as numbers; `index` tells the recording which example it is."""
    number = {word: k for k, word in enumerate(sorted({w for t in texts for w in t.split()}), 1)}
    longest = max(len(text.split()) for text in texts)
    rows = []
    for k, text in enumerate(texts):
        ids = [number[word] for word in text.split()]
        rest = longest - len(ids)
        mask = [1] * len(ids) + [0] * rest
        row = {"input_ids": ids + [0] * rest, "attention_mask": mask, "labels": labels[k]}
        rows.append({**row, "index": k})
    return rows


def main(folder: Path) -> None:
    torch.manual_seed(0)
    texts, given, right = sentences(600)
    data = encoded(texts, given)
    config = BertConfig(
        vocab_size=1 + max(max(row["input_ids"]) for row in data),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    config.num_labels = len(NAMES)
    model = BertForSequenceClassification(config)  # type: ignore[no-untyped-call]
    criterion = proselflc.ProSelfLC(total_steps=1)  # the callback says how many there are
    run = folder / "run"
    with proselflc.record(
        len(data), len(NAMES), out=run, names=NAMES, inputs=texts, criterion=criterion
    ) as rec:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                str(folder / "trainer"),
                num_train_epochs=EPOCHS,
                per_device_train_batch_size=16,
                gradient_accumulation_steps=2,
                learning_rate=3e-3,
                lr_scheduler_type="constant",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=data,
            compute_loss_func=huggingface.compute_loss_func(criterion, rec, model),
            callbacks=[huggingface.ClockCallback(criterion, rec)],
        )
        trainer.train()

    print(f"{rec.run.audit.suspects} of {len(texts)} labels are suspects, such as:")
    for row in rec.run.examples.sort_by("quality").slice(0, 3).to_pylist():
        print(f"  {texts[row['index']]!r}: {row['given_label']} → {row['suggested_label']}")
    for when, labels in (
        ("before", given),
        ("after", proselflc.corrected_labels(run)),
    ):
        share = sum(a == b for a, b in zip(labels, right, strict=True)) / len(right)
        print(f"labels right {when:6}  {share:.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="proselflc-")))
