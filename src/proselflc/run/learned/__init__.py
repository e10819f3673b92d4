"""What learns a run: a network in the loop, trees by rounds, an estimator by folds."""
