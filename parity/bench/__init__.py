"""Speed, the judge's other half: `python -m parity bench`.

Every engine is a process of its own, asked for one repetition at a time (`worker`, `processes`), so that engines with
different tunings, threads and libraries are measured in turns within one run (`measure`). A figure is the median of
ratios of neighbouring repetitions (`figures`), never the quotient of two runs.
"""
