"""Labels judged by out-of-sample probabilities of any model."""
