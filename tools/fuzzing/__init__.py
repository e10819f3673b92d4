"""A fuzzer of every file that proselflc reads: `python tools/fuzz.py`, and tests/faults."""
