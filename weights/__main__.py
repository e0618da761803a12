"""The shelf's command line: `python -m weights make | check | verify`, in the folder of the checkout."""

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

from weights import demo

# Made by the recipe; sentences and the model card are written by hand.
MADE = ("config.json", "model_state.pdparams", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt")

_VERIFY_EPILOG = """examples:
  python -m weights verify                                        all that was published: 6 GB
  python -m weights verify nezha-base-chinese sijunhe/nezha-cn-base --offline

exit code: 0 all right, 1 one is wrong, 2 one could not be had or judged"""


def main(arguments: "list[str]") -> int:
    options = _parser().parse_args(arguments)
    if options.command == "make":
        demo.make(demo.FOLDER)
        print(f"made {demo.FOLDER.name}: {', '.join(MADE)}")
        return 0
    if options.command == "check":
        return _check()
    from weights.verify import verify_all

    return verify_all(options.names, options.record, offline=options.offline, reports=options.report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="make nezha-seeded-demo anew, from its recipe")
    commands.add_parser("check", help="does the recipe still give the very files on the shelf?")
    verify = commands.add_parser(
        "verify",
        help="fetch published checkpoints, digest every tensor, compute published numbers, run the judge",
        epilog=_VERIFY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify.add_argument("names", nargs="*", metavar="NAME", help="published names (default: all)")
    verify.add_argument(
        "--record",
        type=Path,
        default=Path("build/weights/digests.json"),
        metavar="FILE",
        help="the record of digests to write (default: %(default)s)",
    )
    verify.add_argument("--report", type=Path, metavar="FOLDER", help="also write the judge's reports there")
    verify.add_argument("--offline", action="store_true", help="use what is cached, and open no connection")
    return parser


def _check() -> int:
    with tempfile.TemporaryDirectory() as fresh:
        demo.make(Path(fresh))
        _, different, missing = filecmp.cmpfiles(demo.FOLDER, fresh, MADE, shallow=False)
    if different or missing:
        print(
            f"The recipe and the shelf part in: {', '.join([*different, *missing])}. Run: python -m weights make",
            file=sys.stderr,
        )
        return 1
    print(f"{demo.FOLDER.name} is what its recipe makes.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
