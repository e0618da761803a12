"""Paddle's own processor settings, as the package offers them. Called before Paddle is imported."""

NOT_TUNED = "not tuned"


def tune() -> str:
    """Tunes this process if the package can. Says in words what came of it; `NOT_TUNED` and why, where nothing did."""
    try:
        from paddle_nezha.tuning import tune_cpu
    except ImportError as error:
        return f"{NOT_TUNED}: {error}"
    try:
        done = tune_cpu()
    except Exception as error:  # it belongs to the package; an engine that stays stock can still be measured
        return f"{NOT_TUNED}: {type(error).__name__}: {error}".splitlines()[0]
    return "; ".join(str(done).splitlines())
