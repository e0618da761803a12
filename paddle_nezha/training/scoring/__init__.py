"""Metrics of each task, from labels and predictions: no framework, and no file. Shares lie in 0 .. 1, not 0 .. 100."""
