"""Metrics of each task, from labels and predictions: no framework, and no file. Shares lie in 0 .. 1, not 0 .. 100."""

UNSEEN = "unseen_"  # begins a metric's name: over those items alone whose texts are not in train
IN_TRAIN = "in_train"  # a prediction's key, true for the others, where a file has both
