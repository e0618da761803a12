"""A run's curves, or several runs' over one another, as one HTML page that needs nothing else; no Paddle.

The page draws what numbers a run wrote, whatever their names: those known here get a title, a unit and a place. Its
charts are SVG and are there without JavaScript, which adds the values under the pointer. Of a finished fine-tuning, of
one seed or several, it also tells the results.
"""

from paddle_nezha.training.report.curves import thinned
from paddle_nezha.training.report.page import MOST_RUNS, PAGE, render, write_report
from paddle_nezha.training.report.results import Results, read_results, results_summary
from paddle_nezha.training.report.runs import ReportError, Run, Series, has_steps, read_run, seed_folders
from paddle_nezha.training.report.summary import smoothed, summary
from paddle_nezha.training.report.told import metric

__all__ = [
    "MOST_RUNS",
    "PAGE",
    "ReportError",
    "Results",
    "Run",
    "Series",
    "metric",
    "has_steps",
    "read_results",
    "read_run",
    "render",
    "results_summary",
    "seed_folders",
    "smoothed",
    "summary",
    "thinned",
    "write_report",
]
