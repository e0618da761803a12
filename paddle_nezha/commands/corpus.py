"""`paddle-nezha corpus`: texts to a tokenised corpus, and a look into one."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paddle_nezha._children import cores
from paddle_nezha.commands.shared import DONE, WRONG, add_json, command, print_json
from paddle_nezha.hub import published
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.corpus.building import SHARD_CHARACTERS, build_corpus
from paddle_nezha.training.corpus.errors import CorpusError
from paddle_nezha.training.corpus.stored import SPLITS, Corpus, read_manifest, verify
from paddle_nezha.training.corpus.texts import PROBLEMS
from paddle_nezha.training.corpus.words import SEGMENTERS

# Sentences that `show` prints, and tokens of each.
_EXAMPLES, _LONGEST = 3, 100


def add(commands: Any) -> None:
    """Adds `corpus` with `build` and `show`."""
    group = commands.add_parser(
        "corpus", help="texts to a tokenised corpus for pre-training", description="Texts to a tokenised corpus."
    )
    inside = group.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")

    one = command(
        inside,
        "build",
        _build,
        "text files to a tokenised corpus; run again after a stop, it goes on",
        "paddle-nezha corpus build texts/ --tokenizer nezha-base-chinese --out corpus",
        "paddle-nezha corpus build a.txt b.jsonl.gz --tokenizer ./my-model --out corpus --held-out 0.5% --workers 8",
    )
    one.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="one sentence a line, blank lines between documents; or JSONL, a document a line; .gz of both; folders",
    )
    one.add_argument(
        "--tokenizer", required=True, metavar="FOLDER|NAME", help="a folder with vocab.txt, or a published name"
    )
    one.add_argument("--out", required=True, metavar="DIR", help="the folder to fill")
    one.add_argument(
        "--held-out",
        type=_share,
        default=0.01,
        metavar="SHARE",
        help="documents kept for evaluation, such as 1%% or 0.01 (default: 1%%)",
    )
    one.add_argument(
        "--workers",
        type=int,
        default=cores(),
        metavar="N",
        help="processes that tokenise (default: one per core, %(default)s here)",
    )
    one.add_argument(
        "--segmenter",
        choices=SEGMENTERS,
        help="where words come from; none makes each Chinese character a word (default: rjieba, else jieba)",
    )
    one.add_argument("--text-field", default="text", metavar="KEY", help="the text in JSONL (default: %(default)s)")
    one.add_argument(
        "--shard-characters",
        type=int,
        default=SHARD_CHARACTERS,
        metavar="N",
        help="characters of a shard, beyond which a document is cut too (default: %(default)s)",
    )
    one.add_argument("--force", action="store_true", help="replace the corpus that DIR holds")
    add_json(one)
    one.set_defaults(kept="; finished shards are kept, the same command goes on from there")

    one = command(
        inside,
        "show",
        _show,
        "counts, sources and some sentences of a corpus",
        "paddle-nezha corpus show corpus",
        "paddle-nezha corpus show corpus --verify",
    )
    one.add_argument("folder", metavar="FOLDER", help="a corpus")
    one.add_argument("--verify", action="store_true", help="read every file and compare it with its sha256")
    add_json(one)


def _share(text: str) -> float:
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(
            f"expected a share of at least 0 and below 1, such as 1% or 0.01, got {text!r}"
        )
    return share


def _check_tokenizer(given: str) -> None:
    """In the words of the command line; what is inside a folder the tokenizer checks."""
    folder = Path(given)
    if folder.is_file():
        raise CorpusError(
            f"expected --tokenizer to name a folder with vocab.txt, {given} is a file: "
            + (f"--tokenizer {folder.parent}" if folder.name == "vocab.txt" else "copy it as vocab.txt to a folder")
        )
    if folder.exists():
        return
    try:
        published(given)
    except ValueError as error:
        raise CorpusError(
            f"expected --tokenizer to name a folder with vocab.txt or a published checkpoint, there is no "
            f"{folder.absolute()}, and {error}"
        ) from None


def _build(options: argparse.Namespace) -> int:
    _check_tokenizer(options.tokenizer)
    report = build_corpus(
        options.sources,
        options.out,
        options.tokenizer,
        held_out=options.held_out,
        workers=options.workers,
        segmenter=options.segmenter,
        text_field=options.text_field,
        shard_characters=options.shard_characters,
        force=options.force,
    )
    if options.json:
        print_json(asdict(report))
        return DONE
    print(f"read     {report.sources:,} files, {report.bytes:,} bytes")
    for split, counts in report.splits.items():
        print(f"{split:8} {_counted(counts)}")
    _print_few(report.splits)
    _print_problems(report.problems)
    print(f"wrote    {report.folder}: {report.built} shards made, {report.kept} were there; digest {report.digest}")
    return DONE


def _counted(counts: "dict[str, int]") -> str:
    return (
        f"{counts['documents']:,} documents ({counts['one_sentence_documents']:,} of one sentence), "
        f"{counts['sentences']:,} sentences, {counts['words']:,} words, {counts['tokens']:,} tokens "
        f"({counts['unknown_tokens']:,} unknown), {counts['characters']:,} characters"
    )


def _print_few(splits: "dict[str, dict[str, Any]]") -> None:
    """What cannot be done with splits of no document, or of one: sentence pairs are made of two."""
    for split, purpose, remedy in (("train", "trained", "lower"), ("held_out", "evaluated", "raise")):
        documents = splits[split]["documents"]
        if documents == 0:
            print(f"note     {split} has no document, nothing can be {purpose} on it: {remedy} --held-out, or add text")
        elif documents == 1:
            print(
                f"note     {split} has one document, next sentence cannot be {purpose} on it: {remedy} --held-out, or "
                "add text"
            )


def _print_problems(problems: "dict[str, dict[str, Any]]") -> None:
    for kind, found in problems.items():
        more = ", ..." if found["count"] > len(found["examples"]) else ""
        print(f"note     {found['count']:,} {PROBLEMS[kind]}: {', '.join(found['examples'])}{more}")


def _show(options: argparse.Namespace) -> int:
    manifest = read_manifest(Path(options.folder))
    wrong = dict(verify(options.folder)) if options.verify else {}
    if options.json:
        print_json({**manifest, "wrong": wrong} if options.verify else manifest)
        return WRONG if wrong else DONE
    segmenter = manifest["settings"]["segmenter"]
    print(f"words    {' '.join(filter(None, (segmenter['name'], segmenter['version'])))}")
    print(f"tokens   of {manifest['tokenizer']['vocab_size']:,}, tokenizer {manifest['tokenizer']['digest']}")
    for source in manifest["sources"]:
        print(f"source   {source['name']}: {source['bytes']:,} bytes, {source['documents']:,} documents")
    for split in SPLITS:
        part = manifest["splits"][split]
        print(f"{split:8} {_counted(part)}, {len(part['shards'])} shards")
    _print_few(manifest["splits"])
    _print_problems(manifest["problems"])
    for name, told in wrong.items():
        print(f"WRONG    {name}: {told}")
    if wrong:
        print(
            f"checked  {len(wrong)} files are not as built: restore them, or remove them and run the same "
            "`paddle-nezha corpus build` again"
        )
    elif options.verify:
        print("checked  every file is as built")
    if not wrong:
        split = next(name for name in SPLITS if manifest["splits"][name]["shards"])
        for sentence in _marked(Corpus.open(options.folder, split)):
            print(f"sentence {sentence}")
    return WRONG if wrong else DONE


def _marked(corpus: Corpus) -> "Iterator[str]":
    """The first sentences of a split, a bar between words and a space between the tokens of a word."""
    tokenizer = NeZhaTokenizer.from_pretrained(corpus.tokenizer_folder)
    shard = corpus.shards[0]
    for number in range(min(_EXAMPLES, shard.n_sentences)):
        part = slice(*shard.sentences[number : number + 2])
        tokens = tokenizer.convert_ids_to_tokens(shard.tokens[part][:_LONGEST])
        marked = "".join(f"{'|' if start else ' '}{token}" for token, start in zip(tokens, shard.word_starts[part]))
        yield marked[1:]
