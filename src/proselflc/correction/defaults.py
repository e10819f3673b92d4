"""The numbers that criteria have where none are given; nothing here imports torch."""

# ProSelfLC, as in the paper's experiments (Wang et al. 2021).
SHARPNESS = 10.0
MIDPOINT = 0.5
TRUST = "global*local"

# Its low-temperature successor (2022).
LOW_TEMPERATURE = 0.5
LOW_TEMPERATURE_SHARPNESS = 12.0
LOW_TEMPERATURE_TRUST = "global*max_p"

TEMPERATURE = 1.0  # of distillation

POWER = 0.7  # q of the generalised cross entropy (Zhang & Sabuncu 2018)

# Symmetric cross entropy, as for CIFAR-100 (Wang et al. 2019).
ALPHA = 6.0
BETA = 0.1
LOG_ZERO = -4.0
