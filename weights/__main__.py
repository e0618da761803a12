"""The shelf's command line: `python -m weights make | check`."""

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

from weights import demo

# Made by the recipe; sentences and the model card are written by hand.
MADE = ("config.json", "model_state.pdparams", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt")


def main(arguments: "list[str]") -> int:
    parser = argparse.ArgumentParser(prog="python -m weights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="make nezha-seeded-demo anew, from its recipe")
    commands.add_parser("check", help="does the recipe still give the very files on the shelf?")
    if parser.parse_args(arguments).command == "make":
        demo.make(demo.FOLDER)
        print(f"made {demo.FOLDER.name}: {', '.join(MADE)}")
        return 0
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
