"""What all tests share."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side; each has one core."""
    torch.set_num_threads(1)
