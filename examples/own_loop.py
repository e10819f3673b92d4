"""ProSelfLC in a training loop of one's own: one line differs from cross entropy.

Trains a small network on scikit-learn's digits, 40 % of whose training labels are wrong (each digit
is taken for the next one), and measures it on clean test digits. The third run detaches the
prediction inside the target: docs/decisions/0001 says why that corrects nothing.

    python examples/own_loop.py
"""

from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from proselflc import Criterion, CrossEntropy, LowTemperatureProSelfLC, ProSelfLC

NOISE = 0.4
EPOCHS, BATCH = 60, 64
SEEDS = (0, 1, 2)


def noisy_digits(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Training images, given labels, clean labels; test images and labels."""
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=g)
    x, y = x[order], y[order]
    wrong = torch.rand(1297, generator=g) < NOISE
    given = torch.where(wrong, (y[:1297] + 1) % 10, y[:1297])
    return x[:1297], given, y[:1297], x[1297:], y[1297:]


def train(criterion: Criterion, seed: int) -> tuple[float, float]:
    """Test accuracy, and the share of wrong training labels that the network has learned."""
    x, given, clean, x_test, y_test = noisy_digits(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(x)), BATCH):
            loss = criterion(model(x[batch]), given[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        test_accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
        wrong = given != clean
        wrong_fitting = (model(x[wrong]).argmax(1) == given[wrong]).float().mean().item()
    return test_accuracy, wrong_fitting


def main() -> None:
    steps = EPOCHS * -(-1297 // BATCH)
    criteria: dict[str, Callable[[], Criterion]] = {
        "cross entropy": CrossEntropy,
        "ProSelfLC": lambda: ProSelfLC(total_steps=steps),
        "ProSelfLC, p detached": lambda: LowTemperatureProSelfLC(
            steps, sharpness=10.0, temperature=1.0, trust="global*local"
        ),
    }
    print(f"digits, {NOISE:.0%} of the training labels wrong, {len(SEEDS)} seeds, mean ± std\n")
    print(f"{'':22}  test accuracy  wrong labels learned")
    for name, criterion in criteria.items():
        results = torch.tensor([train(criterion(), seed) for seed in SEEDS])
        mean, std = results.mean(0).tolist(), results.std(0).tolist()
        accuracy, fitting = (f"{m:6.1%} ± {s:.1%}" for m, s in zip(mean, std, strict=True))
        print(f"{name:22}  {accuracy}  {fitting:>20}")


if __name__ == "__main__":
    main()
