"""What could stand where a text has a [MASK]."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha._files import PathLike
from paddle_nezha._paddle import paddle
from paddle_nezha.heads import NeZhaForMaskedLM
from paddle_nezha.padding import padding_goes_by_itself
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.vocabulary import check_vocabulary

from . import models
from .batches import TOKENS_PER_BATCH, batches, padded, windows
from .lines import Line, Source, given_lines
from .running import Done, Job, run_file, run_stream

_NUMBERED = "text {}"


@dataclass(frozen=True)
class Candidate:
    """One token for one [MASK].

    Args:
        token: as the vocabulary has it; "##" in front goes on with the word before it.
        id: its number.
        probability: among all tokens of the vocabulary.
        text: the text with it, where the text has one [MASK]; else None.
    """

    token: str
    id: int
    probability: float
    text: Optional[str]


@dataclass(frozen=True)
class _Row:
    """Ids of a text, cut to the length, and where its masks are in them and in the text."""

    ids: "list[int]"
    places: "list[int]"
    spans: "list[tuple[int, int]]"


class FillMask:
    """Ranked candidates for each [MASK] of a text. Several masks are each filled on their own: what the others might
    become is not known to it.

    Args:
        top_k: candidates for each mask. Special tokens are never among them.
        max_length: tokens that are read, [CLS] and [SEP] included. Of a longer text they are taken around its first
            [MASK], and it is refused if another [MASK] lies outside. None is 512, though a model with relative
            positions reads any length.
        tokens_per_batch: rows of a batch times the longest of them.
    """

    def __init__(
        self,
        model: NeZhaForMaskedLM,
        tokenizer: NeZhaTokenizer,
        *,
        top_k: int = 5,
        max_length: Optional[int] = None,
        tokens_per_batch: int = TOKENS_PER_BATCH,
    ) -> None:
        check_vocabulary(model.config, tokenizer)
        self.model, self.tokenizer = model, tokenizer
        self.max_length = models.checked_length(model.config, max_length)
        self.tokens_per_batch = models.checked_budget(tokens_per_batch)
        # Ids beyond the tokenizer's are those of rows that a table was filled up with.
        self._offered = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        if not 1 <= top_k <= len(self._offered):
            raise ValueError(f"top_k must be in 1 .. {len(self._offered)}, the tokens there are, but got {top_k}.")
        self.top_k = top_k
        model.eval()

    @classmethod
    def open(cls, model: Optional[PathLike] = None, **options: Any) -> "FillMask":
        """From a folder or published name.

        Raises:
            ValueError: a checkpoint without a masked-LM head, which would be random.
        """
        remedy = "take a checkpoint with a masked-LM head, as pre-training saves it"
        parts = models.open_model(NeZhaForMaskedLM, models.model_folder(model), "cls.predictions.", remedy)
        return cls(*parts, **options)

    def __call__(
        self, texts: "Union[str, Sequence[str]]"
    ) -> "Union[list[list[Candidate]], list[list[list[Candidate]]]]":
        """
        Args:
            texts: one text, or a list of them, each with at least one [MASK].

        Returns:
            For one text a list with the candidates of each of its masks, the likeliest first; for a list of texts a
            list of these.

        Raises:
            ValueError: something else than texts; one without a [MASK]; masks that are further apart than `max_length`.
        """
        if isinstance(texts, str):
            return self._window([Line(1, texts)], _NUMBERED)[0]
        lines = given_lines(texts)
        for line in lines:
            self._require_mask(line, _NUMBERED)
        return [found for window in windows(lines, self.tokens_per_batch) for found in self._window(window, _NUMBERED)]

    def run(self, source: Source, output: PathLike, *, force: bool = False, progress: bool = True) -> Done:
        """JSONL with an object for every line of a file: "line" (from 1), "text", and "masks", the candidates of each.

        Args:
            output: the file to write, or "-" for standard output.
            force: begin anew where a part has other settings, and replace an output that is there.

        Raises:
            ValueError: a line that cannot be answered, named by its number; else as `run_file`.
        """
        streams, where = str(output) == "-", source.name.replace("{", "{{").replace("}", "}}") + ", line {}"

        def answer(lines: "list[Line]") -> bytes:
            found = self._window(lines, where)
            return "".join(map(_object, lines, found)).encode("utf-8", "backslashreplace")  # lone surrogates: \ud800

        settings = {
            "task": "fill-mask",
            "model, sha256": models.identity(self.model, self.tokenizer),
            "top": self.top_k,
            "max length": self.max_length,
        }
        job = Job(
            answer,
            settings,
            models.surroundings(),
            self.tokens_per_batch,
            check=lambda line: self._require_mask(line, where),
        )
        return run_stream(job, source) if streams else run_file(job, source, output, force=force, progress=progress)

    def _require_mask(self, line: Line, where: str) -> None:
        """
        Args:
            where: what to call the line in a message, with {} for its number.
        """
        mask = self.tokenizer.mask_token
        if mask not in line.text:
            raise ValueError(
                f"{where.format(line.number)}: expected {mask} where a token is to be found, got {line.text[:60]!r}. "
                "Write it there."
            )

    def _window(self, lines: "list[Line]", where: str) -> "list[list[list[Candidate]]]":
        """For each line the candidates of each of its masks."""
        encoded = self.tokenizer(
            [line.text for line in lines],
            add_special_tokens=False,
            return_token_type_ids=False,
            return_offsets_mapping=True,
        )
        rows = [
            self._row(line, ids, offsets, where)
            for line, ids, offsets in zip(lines, encoded["input_ids"], encoded["offset_mapping"])
        ]
        found: "list[list[list[Candidate]]]" = [[] for _ in rows]
        for batch in batches([len(row.ids) for row in rows], self.tokens_per_batch):
            scores = iter(self._batch([rows[place] for place in batch]))
            for place in batch:
                row, text = rows[place], lines[place].text
                found[place] = [self._candidates(next(scores), text, row.spans) for _ in row.places]
        return found

    def _row(self, line: Line, ids: "list[int]", offsets: "list[tuple[int, int]]", where: str) -> _Row:
        self._require_mask(line, where)
        masks = [place for place, number in enumerate(ids) if number == self.tokenizer.mask_token_id]
        room, first = self.max_length - 2, 0
        if len(ids) > room:
            first = min(max(masks[0] - room // 2, 0), len(ids) - room)
            if masks[-1] >= first + room:
                raise ValueError(
                    f"{where.format(line.number)}: it has {len(ids)} tokens, and its masks do not fit into the {room} "
                    f"around the first: give --max-length (max_length=) {len(ids) + 2}, or split the text."
                )
        kept = [self.tokenizer.cls_token_id, *ids[first : first + room], self.tokenizer.sep_token_id]
        return _Row(kept, [1 + place - first for place in masks], [offsets[place] for place in masks])

    def _batch(self, rows: "list[_Row]") -> np.ndarray:
        """Logits [masks, V] of all masks of the rows, in their order."""
        ids, mask = padded([row.ids for row in rows], self.tokenizer.pad_token_id)
        places = [number * ids.shape[1] + place for number, row in enumerate(rows) for place in row.places]
        with paddle.no_grad():
            shown = paddle.to_tensor(mask)
            unpad = padding_goes_by_itself(shown, True, None)
            hidden = self.model.nezha(paddle.to_tensor(ids), attention_mask=shown, return_dict=False, unpad=unpad)[0]
            read = paddle.gather(paddle.flatten(hidden, 0, 1), paddle.to_tensor(places))
            logits: np.ndarray = self.model.cls.predictions(read).astype("float32").numpy()
            return logits

    def _candidates(self, logits: np.ndarray, text: str, spans: "list[tuple[int, int]]") -> "list[Candidate]":
        wide = logits.astype("float64")
        wide -= wide.max()
        offered = wide[self._offered]
        best = np.argpartition(-offered, self.top_k - 1)[: self.top_k]
        best = best[np.lexsort([best, -offered[best]])]
        log_sum = np.log(np.exp(wide).sum())
        found = []
        for number in map(int, self._offered[best]):
            token = str(self.tokenizer.convert_ids_to_tokens(number))
            text_with = _filled(text, spans[0], token) if len(spans) == 1 else None
            found.append(Candidate(token, number, float(np.exp(wide[number] - log_sum)), text_with))
        return found


def _filled(text: str, span: "tuple[int, int]", token: str) -> str:
    before, after = text[: span[0]], text[span[1] :]
    return before.rstrip() + token[2:] + after if token.startswith("##") else before + token + after


def _object(line: Line, found: "list[list[Candidate]]") -> str:
    masks = [[asdict(candidate) for candidate in candidates] for candidates in found]
    return json.dumps({"line": line.number, "text": line.text, "masks": masks}, ensure_ascii=False) + "\n"
