"""What learns the rows of a table: trees by rounds, or any classifier of scikit-learn.

What learns is one small protocol, `learner.Learner`: `fit` takes a table and returns a
`learner.Fitted`, whose `staged` predictions are those after each round. An ensemble has many
rounds, an estimator has one, and a network has its epochs (`run.learned.choice`). A round is
recorded as an epoch of a network is, so everything that reads a run works for all of them, and
nothing above the protocol asks which one it was.

Trees memorise the labels that they are grown from, so a run also keeps the predictions of every
row by an ensemble that did not see it (`run.learned.fitted`). The audit uses these.

Models are saved as arrays of numbers, in the text format of their library or not at all. Nothing
is pickled, and a run never names code that is imported.
"""
