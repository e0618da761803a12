"""`python -m paddle_nezha`, and the script `paddle-nezha`."""

import os
import sys


def main() -> int:
    """Ctrl-C while the modules are imported, which takes a second, ends as it does later: without a traceback."""
    try:
        from paddle_nezha import cli

        code = cli.main()
    except KeyboardInterrupt:
        print("paddle-nezha: stopped", file=sys.stderr)
        return 130
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        # Seen once: Paddle crashed as it took its process groups down, and a run that was complete counted as failed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
