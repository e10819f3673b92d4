"""The numbers that the paper prints; rows are named by the titles of the methods."""

from __future__ import annotations

NOISES = (
    *("pair:0.2", "pair:0.3", "pair:0.4"),
    *("symmetric:0.2", "symmetric:0.4", "symmetric:0.6"),
)
OWN = ("Cross entropy", "Label smoothing", "Confidence penalty", "Boot-soft", "ProSelfLC")
QUOTED = (  # in Table 4, from Wang et al. 2019
    *("Boot-hard", "Forward correction", "D2L"),
    *("Generalised cross entropy", "Symmetric cross entropy"),
)

# Table 1: learning target, divergence without its constant, entropy minimisation, semantic class,
# similarity structure. LC, label correction, is Boot-soft with its fixed ε.
SUMMARY: dict[str, tuple[str, str, str, str, str]] = {
    "CCE": ("q", "KL(q‖p)", "–", "annotated", "no"),
    "LS": ("(1 − ε) q + ε u", "(1 − ε) KL(q‖p) + ε KL(u‖p)", "penalise", "annotated", "no"),
    "CP": ("(1 − ε) q − ε p", "(1 − ε) KL(q‖p) + ε KL(p‖u)", "penalise", "annotated", "no"),
    "LC": (
        *("(1 − ε) q + ε p", "(1 − ε) KL(q‖p) − ε KL(p‖u)"),
        *("reward", "annotated and learned", "yes"),
    ),
}

# Table 2: ε = g(t) · l(p), in an earlier and a later phase; the class changes in the last cell.
CASES = ((0.01, 0.09, 0.09), (0.09, 0.81, 0.81))

# Table 3: test accuracy (%), by data set, method and value.
STANDARD: dict[str, dict[str, dict[float | None, float]]] = {
    "cifar100": {
        "Cross entropy": {None: 69.0},
        "Label smoothing": {0.125: 69.9, 0.25: 69.6, 0.5: 68.4},
        "Confidence penalty": {0.125: 69.5, 0.25: 69.3, 0.5: 68.7},
        "Boot-soft": {0.125: 68.9, 0.25: 69.1, 0.5: 69.1},
        "ProSelfLC": {8.0: 70.1, 10.0: 70.3, 12.0: 69.8},
    },
    "imagenet": {
        "Cross entropy": {None: 75.5},
        "Label smoothing": {0.125: 75.3, 0.25: 75.2, 0.5: 74.9},
        "Confidence penalty": {0.125: 75.2, 0.25: 74.8, 0.5: 74.6},
        "Boot-soft": {0.125: 75.7, 0.25: 75.8, 0.5: 75.8},
        "ProSelfLC": {8.0: 76.0, 10.0: 76.0, 12.0: 75.9},
    },
}

# Table 4: test accuracy (%) on CIFAR-100, in the order of NOISES.
SYNTHETIC: dict[str, tuple[float, ...]] = {
    "Boot-hard": (63.4, 63.2, 62.1, 57.9, 48.2, 12.3),
    "Forward correction": (64.1, 64.0, 60.9, 59.8, 53.1, 24.7),
    "D2L": (62.4, 63.2, 61.4, 59.2, 52.0, 35.3),
    "Generalised cross entropy": (63.0, 63.2, 61.7, 59.1, 53.3, 36.2),
    "Symmetric cross entropy": (65.6, 65.1, 63.1, 60.0, 53.7, 41.5),
    "Cross entropy": (66.6, 63.4, 59.5, 58.0, 50.1, 37.9),
    "Label smoothing": (67.9, 66.4, 65.0, 63.8, 57.2, 46.5),
    "Confidence penalty": (67.7, 66.0, 64.4, 64.0, 56.8, 44.1),
    "Boot-soft": (66.9, 65.3, 61.0, 63.2, 59.0, 44.8),
    "ProSelfLC": (68.7, 68.5, 67.9, 64.8, 59.3, 47.7),
}

# Table 5: test accuracy (%) on CIFAR-100 by method and value, in the order of NOISES, then clean.
HYPERPARAMETERS: dict[str, dict[float | None, tuple[float, ...]]] = {
    "Cross entropy": {None: (66.6, 63.4, 59.5, 58.0, 50.1, 37.9, 69.0)},
    "Label smoothing": {
        0.125: (66.4, 65.6, 63.1, 61.7, 52.5, 39.1, 69.9),
        0.25: (67.9, 66.4, 65.0, 62.8, 55.9, 40.9, 69.6),
        0.5: (66.8, 65.8, 64.6, 63.8, 57.2, 46.5, 68.4),
    },
    "Confidence penalty": {
        0.125: (65.7, 64.2, 60.3, 59.8, 52.3, 39.6, 69.5),
        0.25: (66.8, 65.1, 61.6, 61.0, 53.3, 40.9, 69.3),
        0.5: (67.7, 66.0, 64.4, 64.0, 56.8, 44.1, 68.7),
    },
    "Boot-soft": {
        0.125: (65.8, 64.1, 60.7, 59.7, 51.2, 40.6, 68.9),
        0.25: (66.2, 64.1, 60.3, 61.1, 54.4, 43.3, 69.1),
        0.5: (66.9, 65.3, 61.0, 63.2, 59.0, 44.8, 69.1),
    },
    "ProSelfLC": {
        8.0: (67.8, 67.4, 67.9, 64.7, 57.7, 47.7, 70.1),
        10.0: (68.5, 68.5, 66.8, 63.9, 59.0, 47.5, 70.3),
        12.0: (68.6, 67.9, 67.4, 64.0, 59.3, 47.5, 69.8),
        14.0: (68.7, 68.0, 67.8, 64.8, 59.0, 47.4, 69.6),
        16.0: (68.4, 67.2, 67.3, 63.7, 59.0, 32.3, 69.9),
    },
}

# Table 6: test accuracy (%) on Clothing1M.
CLOTHING: dict[str, float] = {
    "Boot-hard": 68.9,
    "Forward correction": 69.8,
    "D2L": 69.5,
    "Generalised cross entropy": 69.8,
    "Symmetric cross entropy": 71.0,
    "S-adaptation": 70.3,
    "Masking": 71.1,
    "MD-DYR-SH": 71.0,
    "Joint-soft": 72.2,
    "Cross entropy": 71.8,
    "Label smoothing": 72.6,
    "Confidence penalty": 72.4,
    "Boot-soft": 72.3,
    "ProSelfLC": 73.4,
}

# Table 7: ECE (%) of ProSelfLC and of cross entropy, by confidence and T.
ECE: dict[tuple[str, str], tuple[float, float]] = {
    ("max_p", "1"): (15.71, 40.98),
    ("max_p", "1/4"): (4.24, 18.27),
    ("max_p", "1/8"): (2.39, 9.94),
    ("entropy", "1"): (17.38, 42.83),
    ("entropy", "1/4"): (5.22, 17.84),
    ("entropy", "1/8"): (2.66, 9.53),
}

# Figure 3: what the text says about the order of the curves at the end, by column of a history.
# Pairs of (higher, lower) follow from "above" and "below": the methods that are each above or
# below the others.
_REGULARISED = ("Label smoothing", "Confidence penalty")
_TRUSTING = ("Cross entropy", "Boot-soft")


def _pairs(above: tuple[str, ...], below: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((high, low) for high in above for low in below if high != low)


ORDERS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "wrong_fitting": (
        "Wrong fitting: in the paper, ProSelfLC fits fewer wrong labels than each other method.",
        _pairs(OWN[:-1], OWN[-1:]),
    ),
    "semantic_correction": (
        "Semantic correction: in the paper, ProSelfLC corrects more labels than each other method.",
        _pairs(OWN[-1:], OWN[:-1]),
    ),
    **{
        f"entropy_{subset}": (
            f"Entropy of the {subset} subset: in the paper, ProSelfLC is below each other method, "
            "and label smoothing and confidence penalty are above cross entropy and Boot-soft.",
            _pairs(OWN[:-1], OWN[-1:]) + _pairs(_REGULARISED, _TRUSTING),
        )
        for subset in ("clean", "noisy")
    },
    "test_accuracy": (
        "Generalisation: in the paper, ProSelfLC is above each other method, and label smoothing "
        "and confidence penalty are above cross entropy and Boot-soft.",
        _pairs(OWN[-1:], OWN[:-1]) + _pairs(_REGULARISED, _TRUSTING),
    ),
}
