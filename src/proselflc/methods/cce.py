"""Cross entropy, which all other methods are compared with."""

from proselflc.training.method import Method, Parameters

METHOD = Method(
    title="Cross entropy",
    loss="H(q, p)",
    where="Eq. 2",
    when="Use it as the baseline, to choose the model and the length of training, and for an "
    "audit, where it does nearly as well as any other method.",
    parameters=Parameters,
    criterion="CrossEntropy",
)
