"""`python -m paddle_nezha`, and the script `paddle-nezha`."""

import sys


def main() -> int:
    """Ctrl-C while the modules are imported, which takes a second, ends as it does later: without a traceback."""
    try:
        from paddle_nezha import cli

        return cli.main()
    except KeyboardInterrupt:
        print("paddle-nezha: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
