"""`NeZhaTokenizer`: PaddleNLP's tokenizer calls, BERT's ids, exact character offsets."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Optional, Union

from tokenizers import AddedToken, Encoding

from ..config import NEZHA_PRETRAINED_INIT_CONFIGURATION
from . import backend, files, kinds, rows
from .call import Call, PadTo, refuse_unknown
from .columns import Batch, collected, plain
from .encoding import BatchEncoding, to_tensors
from .samples import Samples, read_samples, unzip_pairs
from .settings import KINDS, SPECIAL_NAMES, setting
from .vocabulary import Vocab, read_vocabulary

# English spelling that `decode` restores.
_CLOSE_UP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"),
    (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
_NAMES = tuple(NEZHA_PRETRAINED_INIT_CONFIGURATION)
_VOCABULARY_ADDRESS = "https://bj.bcebos.com/paddlenlp/models/transformers/nezha/nezha-chinese-vocab.txt"


def _token(name: str) -> Any:
    return property(lambda self: self._special[name], doc=f"The text of the {name}.")


def _token_id(name: str) -> Any:
    return property(lambda self: self._ids[self._special[name]], doc=f"The id of the {name}.")


def _setting(name: str, doc: str) -> Any:
    def assign(self: Any, value: Any) -> None:
        self._settings[name] = setting(name, value)

    return property(lambda self: self._settings[name], assign, doc=doc)


class NeZhaTokenizer:
    """WordPiece as BERT does it, called as PaddleNLP's `NeZhaTokenizer` is.

    A text is cleaned of control characters, split at spaces, punctuation and Chinese characters, lower-cased
    and freed of accents under `do_lower_case`, and cut into the longest pieces the vocabulary holds; a word
    it cannot spell, or one of more than 100 characters, is one `unk_token`. Special tokens written in a text
    keep their ids ("[MASK]" is 103). Source: google-research/bert, `tokenization.py`.

    Calls keep no state, so one tokenizer serves threads and forked data workers; only `add_tokens` must not
    run while another thread encodes.

    Args:
        vocab_file: one token per line, UTF-8.
        do_lower_case: the Chinese vocabulary has no capital letters; without lower-casing "Apple" is
            `unk_token`. False gives the ids PaddleNLP gives for the official names.
        unk_token, sep_token, pad_token, cls_token, mask_token: all must be in the vocabulary.
        additional_special_tokens: more tokens to match whole, with new ids where the vocabulary lacks them.
        model_max_length: the length of `truncation=True` and `padding="max_length"` where no `max_length` is
            given; None is no limit. The model itself takes any length.
        padding_side: "right" or "left".
        strip_accents: None follows `do_lower_case`, as in BERT.
        tokenize_chinese_chars: each Chinese character is a word of its own.
        split_symbols: each Unicode symbol (emoji, currency, "℃") is a word of its own, as in PaddleNLP; False
            leaves it with its neighbours, as in BERT. None: True exactly when `do_lower_case` is False.
        clean_up_tokenization_spaces: `decode` closes up the space before English punctuation.

    Raises:
        FileNotFoundError: no vocabulary there.
        ValueError: a damaged vocabulary, or one without a special token; a value a setting cannot have.
        TypeError: an unknown keyword.
    """

    resource_files_names = {"vocab_file": files.VOCABULARY_FILE}
    # PaddleNLP registers False, and each capital letter becomes [UNK]; training had lower-cased the texts.
    pretrained_init_configuration = {name: {"do_lower_case": True} for name in _NAMES}
    pretrained_resource_files_map = {"vocab_file": dict.fromkeys(_NAMES, _VOCABULARY_ADDRESS)}
    max_model_input_sizes = dict.fromkeys(_NAMES, 512)
    model_input_names = ["input_ids", "token_type_ids"]
    pad_token_type_id = 0

    unk_token, unk_token_id = _token("unk_token"), _token_id("unk_token")
    sep_token, sep_token_id = _token("sep_token"), _token_id("sep_token")
    pad_token, pad_token_id = _token("pad_token"), _token_id("pad_token")
    cls_token, cls_token_id = _token("cls_token"), _token_id("cls_token")
    mask_token, mask_token_id = _token("mask_token"), _token_id("mask_token")

    model_max_length = _setting("model_max_length", "The length of calls that give no `max_length`; None is no limit.")
    padding_side = _setting("padding_side", 'Where padding comes: "right" or "left".')
    clean_up_tokenization_spaces = _setting(
        "clean_up_tokenization_spaces", "Whether `decode` closes up the space before English punctuation."
    )

    def __init__(
        self,
        vocab_file: Union[str, "os.PathLike[str]"],
        do_lower_case: bool = True,
        unk_token: str = "[UNK]",
        sep_token: str = "[SEP]",
        pad_token: str = "[PAD]",
        cls_token: str = "[CLS]",
        mask_token: str = "[MASK]",
        *,
        additional_special_tokens: Sequence[str] = (),
        model_max_length: Optional[int] = 512,
        padding_side: str = "right",
        strip_accents: Optional[bool] = None,
        tokenize_chinese_chars: bool = True,
        split_symbols: Optional[bool] = None,
        clean_up_tokenization_spaces: bool = True,
        **unknown: Any,
    ) -> None:
        refuse_unknown("NeZhaTokenizer", unknown, KINDS)
        self._tokens = read_vocabulary(vocab_file)
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        self._size = len(self._tokens)
        given = (unk_token, sep_token, pad_token, cls_token, mask_token)
        self._special = {name: setting(name, token) for name, token in zip(SPECIAL_NAMES, given)}
        self._check_special(os.fsdecode(vocab_file))
        behaviour = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
            "split_symbols": split_symbols,
        }
        self._behaviour = {name: setting(name, value) for name, value in behaviour.items()}
        if self._behaviour["split_symbols"] is None:
            self._behaviour["split_symbols"] = not self.do_lower_case
        self._rust = backend.build(self._ids, self.unk_token, **self._behaviour)
        self._rust.add_special_tokens([backend.special_token(token) for token in given])
        self._additional: list[str] = []
        self._unread: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self.model_max_length = model_max_length
        self.padding_side = padding_side
        self.clean_up_tokenization_spaces = clean_up_tokenization_spaces
        self.add_tokens(setting("additional_special_tokens", additional_special_tokens), special_tokens=True)

    def _check_special(self, vocab_file: str) -> None:
        for name, token in self._special.items():
            if token not in self._ids:
                raise ValueError(
                    f"expected the {name} in the vocabulary, {vocab_file!r} does not hold {token!r}; "
                    f"give the right file, or {name}= the token it uses instead"
                )

    # Files

    @classmethod
    def from_pretrained(
        cls,
        folder: Union[str, "os.PathLike[str]"],
        *,
        cache_dir: "Optional[Union[str, os.PathLike[str]]]" = None,
        **overrides: Any,
    ) -> "NeZhaTokenizer":
        """The tokenizer of a folder saved here, by PaddleNLP or by HF, each with the ids its writer gave.

        Args:
            folder: holds vocab.txt; tokenizer_config.json, special_tokens_map.json and added_tokens.json are
                read where they exist. The special token map wins over the settings, `overrides` over both.
                A published name is fetched, with its model, if it is not here.
            cache_dir: where published checkpoints are kept, as for models.

        Raises:
            TypeError: no path.
            FileNotFoundError: no such folder, or no vocabulary in it.
            ValueError: a value its key cannot have; a setting that gives other ids and is not supported; added
                tokens with gaps in their ids.
        """
        path = files.resolve(folder, cache_dir)
        found = files.read_folder(path)
        settings = {**found.settings, **overrides}
        # Added tokens come with their ids; the constructor would number these by their order.
        listed = setting("additional_special_tokens", settings.pop("additional_special_tokens", ()))
        additional = [backend.added_token(token, special=True) for token in listed]
        tokenizer = cls(os.path.join(path, files.VOCABULARY_FILE), **settings)
        for number, token in sorted(found.added.items()):
            tokenizer._restore(number, token, found.added_file)
        tokenizer.add_tokens(additional, special_tokens=True)
        tokenizer._additional = list(dict.fromkeys((*(token.content for token in additional), *tokenizer._additional)))
        tokenizer._unread = found.unread
        return tokenizer

    def _restore(self, number: int, token: AddedToken, file: str) -> None:
        if token.content not in self._special.values():
            self.add_tokens([token], special_tokens=token.special)
        here = self._ids.get(token.content)
        if here != number:
            raise ValueError(
                f"expected added tokens numbered on from {self._size}, {file!r} gives {token.content!r} the "
                f"id {number} where {here} comes next; restore vocab.txt and the added tokens together"
            )

    def save_pretrained(self, folder: Union[str, "os.PathLike[str]"]) -> tuple[str, ...]:
        """Writes vocab.txt, tokenizer_config.json, special_tokens_map.json and, if any, added_tokens.json.

        Each file appears whole or not at all. Returns their paths.
        """
        settings = {
            **self._unread,
            **self._special,
            **self._behaviour,
            **self._settings,
            "additional_special_tokens": self._additional,
        }
        added = self._rust.get_added_tokens_decoder()
        for token in self._special.values():
            added.pop(self._ids[token], None)
        return files.write_folder(kinds.path_of("folder", folder), self._tokens, self._size, settings, added)

    def save_vocabulary(self, folder: Union[str, "os.PathLike[str]"]) -> tuple[str, ...]:
        """Writes vocab.txt alone, without added tokens, and returns its path."""
        return (files.write_vocabulary(kinds.path_of("folder", folder), self._tokens[: self._size]),)

    # Vocabulary

    @property
    def behaviour(self) -> dict[str, Any]:
        """The settings that decide, beside the vocabulary, which ids a text gets."""
        return dict(self._behaviour)

    @property
    def do_lower_case(self) -> bool:
        """Whether texts are lower-cased; fixed when the tokenizer is made."""
        return bool(self._behaviour["do_lower_case"])

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary file, without added ones; `len(tokenizer)` counts both."""
        return self._size

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return (
            f"NeZhaTokenizer(vocab_size={self._size}, added={len(self) - self._size}, "
            f"do_lower_case={self.do_lower_case}, model_max_length={self.model_max_length})"
        )

    @cached_property
    def vocab(self) -> Vocab:
        """The vocabulary file, without added tokens, as PaddleNLP gives it; a copy, which changes nothing here."""
        return Vocab(self._tokens[: self._size], self.unk_token)

    def get_vocab(self) -> dict[str, int]:
        """Every token, added ones included, with its id."""
        return dict(self._ids)

    @property
    def additional_special_tokens(self) -> list[str]:
        """Special tokens beyond the five named ones."""
        return list(self._additional)

    @property
    def all_special_tokens(self) -> list[str]:
        """The five special tokens and the additional ones, each once."""
        return list(dict.fromkeys((*self._special.values(), *self._additional)))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of `all_special_tokens`."""
        return [self._ids[token] for token in self.all_special_tokens]

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """Names and texts of the special tokens, as special_tokens_map.json holds them."""
        more = {"additional_special_tokens": self.additional_special_tokens} if self._additional else {}
        return {**self._special, **more}

    def add_tokens(
        self,
        new_tokens: Union[str, AddedToken, Sequence[Union[str, AddedToken]]],
        special_tokens: bool = False,
    ) -> int:
        """Adds tokens that are matched whole in texts, numbered on from `len(self)`.

        A token the vocabulary already holds keeps its id. Ordinary tokens are matched after lower-casing
        where the tokenizer lower-cases, special ones exactly as written. Afterwards resize the model's
        embeddings to `len(tokenizer)`.

        Returns:
            How many ids are new.

        Raises:
            ValueError: a token that no text holds, or every text.
        """
        several = isinstance(new_tokens, Iterable) and not isinstance(new_tokens, str)
        given: Any = new_tokens if several else [new_tokens]
        tokens = [backend.added_token(token, special_tokens) for token in given]
        for token in tokens:
            if special_tokens and token.content not in self.all_special_tokens:
                self._additional.append(token.content)
        new = [content for content in dict.fromkeys(token.content for token in tokens) if content not in self._ids]
        self._ids.update((content, len(self._tokens) + place) for place, content in enumerate(new))
        self._tokens.extend(new)
        add = self._rust.add_special_tokens if special_tokens else self._rust.add_tokens
        add(tokens)
        return len(new)

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any]) -> int:
        """Adds `additional_special_tokens`, beside those there are; the five named tokens stay what they are.

        Returns:
            How many ids are new; then resize the model's embeddings to `len(tokenizer)`.

        Raises:
            ValueError: another text for a named token, which would change what its rows are framed with.
        """
        if not isinstance(special_tokens_dict, Mapping):
            raise TypeError(
                "expected a dict such as {'additional_special_tokens': ['[E]']}, "
                f"got {type(special_tokens_dict).__name__}; use add_tokens(tokens, special_tokens=True) for a list"
            )
        given = dict(special_tokens_dict)
        additional = setting("additional_special_tokens", given.pop("additional_special_tokens", ()))
        for name, token in given.items():
            if name not in self._special:
                raise ValueError(
                    f"expected names out of {(*SPECIAL_NAMES, 'additional_special_tokens')}, got {name!r}; "
                    "put the token into additional_special_tokens"
                )
            if getattr(token, "content", token) != self._special[name]:
                raise ValueError(
                    f"expected {name}={self._special[name]!r} to stay, got {token!r}; "
                    f"make the tokenizer with {name}= a token of its vocabulary instead"
                )
        return self.add_tokens(additional, special_tokens=True)

    def convert_tokens_to_ids(self, tokens: Union[str, Sequence[str]]) -> Union[int, list[int]]:
        """The id of a token, or of each; `unk_token_id` for what the vocabulary does not hold.

        Raises:
            TypeError: something that is no token.
        """
        if isinstance(tokens, str):
            return self._ids.get(tokens, self.unk_token_id)
        each = list(tokens) if isinstance(tokens, Iterable) else [tokens]
        for token in each:
            if not isinstance(token, str):
                raise TypeError(
                    f"expected tokens as str, got {type(token).__name__}; convert lists of tokens one by one"
                )
        return [self._ids.get(token, self.unk_token_id) for token in each]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Union[str, list[str]]:
        """The token of an id, or of each id of a list, array or tensor.

        Raises:
            ValueError: an id outside [0, len(self)).
        """
        numbers = plain(ids)
        return self._token_at(numbers) if isinstance(numbers, int) else self._tokens_at(numbers, skip_special_tokens)

    def _tokens_at(self, numbers: Any, skip_special_tokens: bool) -> list[str]:
        hidden = set(self.all_special_ids) if skip_special_tokens else ()
        each = numbers if isinstance(numbers, Iterable) else [numbers]
        tokens = [(number, self._token_at(number)) for number in each]
        return [token for number, token in tokens if number not in hidden]

    def _token_at(self, number: Any) -> str:
        if not isinstance(number, int) or not 0 <= number < len(self._tokens):
            raise ValueError(
                f"expected ids in [0, {len(self._tokens)}), got {number!r}; decode rows of ids with "
                "batch_decode, and drop ignored labels such as -100 first"
            )
        return self._tokens[number]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Tokens joined by spaces, pieces that begin with "##" joined to what precedes them."""
        return " ".join(tokens).replace(" ##", "").strip()

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: Optional[bool] = None,
    ) -> str:
        """The text of one row of ids (int, list, array or tensor [L]), a space between Chinese characters.

        Args:
            skip_special_tokens: leave out every special token, `unk_token` too.
            clean_up_tokenization_spaces: close up " ." to "." and the like; None is the tokenizer's setting.
        """
        tokens = self._tokens_at(plain(token_ids), skip_special_tokens)
        text = self.convert_tokens_to_string(tokens)
        clean = clean_up_tokenization_spaces
        if clean is None:
            clean = self.clean_up_tokenization_spaces
        for apart, together in _CLOSE_UP if clean else ():
            text = text.replace(apart, together)
        return text

    def batch_decode(self, sequences: Any, **options: Any) -> list[str]:
        """`decode` of each row of a list, array or tensor [B, L]."""
        return [self.decode(row, **options) for row in plain(sequences)]

    # Framing

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """2 for [CLS] A [SEP], 3 for [CLS] A [SEP] B [SEP]."""
        return Call().special(pair)

    def build_inputs_with_special_tokens(
        self, token_ids_0: Sequence[int], token_ids_1: Optional[Sequence[int]] = None
    ) -> list[int]:
        """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
        return rows.frame(token_ids_0, token_ids_1, [self.cls_token_id], [self.sep_token_id])

    def build_offset_mapping_with_special_tokens(
        self,
        offset_mapping_0: Sequence[tuple[int, int]],
        offset_mapping_1: Optional[Sequence[tuple[int, int]]] = None,
    ) -> list[tuple[int, int]]:
        """Offsets of the framed row, (0, 0) at the special tokens."""
        return rows.frame(offset_mapping_0, offset_mapping_1, [(0, 0)], [(0, 0)])

    def create_token_type_ids_from_sequences(
        self, token_ids_0: Sequence[int], token_ids_1: Optional[Sequence[int]] = None
    ) -> list[int]:
        """0 over [CLS] A [SEP], 1 over B [SEP]."""
        second = [] if token_ids_1 is None else [1] * (len(token_ids_1) + 1)
        return [0] * (len(token_ids_0) + 2) + second

    def get_special_tokens_mask(
        self,
        token_ids_0: Sequence[int],
        token_ids_1: Optional[Sequence[int]] = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """1 at special tokens, 0 elsewhere, of the row these ids would be framed to, or of a framed row.

        In a row already framed every special id counts, padding and `unk_token` included.
        """
        if not already_has_special_tokens:
            second = None if token_ids_1 is None else [0] * len(token_ids_1)
            return rows.frame([0] * len(token_ids_0), second, [1], [1])
        if token_ids_1 is not None:
            raise ValueError(
                "expected one framed row under already_has_special_tokens=True, got token_ids_1 as well; "
                "join them first"
            )
        special = set(self.all_special_ids)
        return [int(number in special) for number in token_ids_0]

    # Texts to ids

    def tokenize(self, text: str) -> list[str]:
        """The tokens of one text, unframed; `unk_token` for what the vocabulary cannot spell."""
        samples = read_samples(text, None, False)
        if samples.batched:
            raise TypeError(f"expected text to be str, got {type(text).__name__}; tokenize texts one by one")
        encoding = backend.encode(self._rust, samples.texts, words=False, offsets=False)[0]
        return [self._tokens[number] for number in encoding.ids]

    def __call__(self, text: Any, text_pair: Any = None, **keywords: Any) -> Any:
        """Model inputs of one text, of a pair, or of a batch of either.

        Args:
            text: str, or a list of str for a batch; with `is_split_into_words` a list of words, or a list of
                those. A list of (first, second) tuples is a batch of pairs.
            text_pair: the second text of each pair, in the form of `text`.
            max_length (int): tokens of a row, special tokens included. Alone, without `padding` and
                `truncation`, it truncates, as in PaddleNLP. `max_seq_len` is its old name.
            truncation (bool or str, False): True or "longest_first" takes tokens from the end of the longer
                text, one at a time; "only_first", "only_second" from that text alone; False or
                "do_not_truncate".
            padding (bool or str, False): True or "longest" to the longest row, "max_length" to `max_length`,
                False or "do_not_pad". `pad_to_max_seq_len=True` is the old way to say "max_length".
            pad_to_multiple_of (int): rounds the padded length up.
            padding_side (str): "left" or "right" in place of the tokenizer's own.
            return_overflowing_tokens (bool, False): what truncation would drop comes as further rows, and
                `overflow_to_sample` says whose they are. Neighbouring rows share `stride` tokens, as in HF.
            stride (int, 0): without `return_overflowing_tokens` it means what it means in PaddleNLP: the
                second text of each pair becomes windows that begin `stride` tokens apart, with
                `offset_mapping` and `overflow_to_sample`.
            is_split_into_words (bool, False): texts are lists of words; `word_ids(row)` tells whose each
                token is.
            add_special_tokens (bool, True): frame the rows as [CLS] A [SEP] or [CLS] A [SEP] B [SEP].
            return_token_type_ids (bool, True), return_attention_mask, return_special_tokens_mask,
                return_offsets_mapping, return_length (bool, False): which columns come.
            return_position_ids: only False; NeZha has none.
            verbose (bool, True): False keeps the warnings to itself.
            return_dict (bool, True): False gives a batch as a list of dicts, one per row.
            return_tensors (str): "np", "pd" or "pt" for int64 arrays [B, L]; None for lists.

        Returns:
            BatchEncoding of lists of length L, or for a batch of B such lists:
            `input_ids`; `token_type_ids`; `attention_mask` (1 at tokens, 0 at padding);
            `special_tokens_mask` (1 at [CLS], [SEP] and padding); `offset_mapping` (start and end of each
            token in the caller's text, or in its word, and (0, 0) at special tokens); `length`, also as
            PaddleNLP's `seq_len` (tokens without padding).

        Raises:
            TypeError: something that is no text, with where it stands; an unknown keyword.
            ValueError: a value a keyword cannot have, keywords that contradict each other, or tensors asked of rows
                that differ in length.
        """
        call = Call.read(keywords)
        samples = read_samples(text, text_pair, call.is_split_into_words)
        cut = call.cut(samples.pairs is not None, self.model_max_length)
        pad_to = call.pad_to(cut, self.model_max_length)
        batch = Batch(*self._encode(samples, call), call, cut)
        if cut is not None and call.length is None and not call.windows and call.verbose:
            _warn_of_default_length(batch, cut.max_length)
        columns = batch.columns(self.cls_token_id, self.sep_token_id)
        word_ids = batch.framed("word_ids", None, None) if call.is_split_into_words else None
        if pad_to is not None:
            columns, word_ids = self._padded(columns, word_ids, pad_to, call.padding_side)
        return _delivered(columns, word_ids, call, samples.batched or call.windows)

    def encode(self, text: Any, text_pair: Any = None, **keywords: Any) -> Any:
        """The same as calling the tokenizer, as in PaddleNLP (HF's `encode` gives the ids alone)."""
        return self(text, text_pair, **keywords)

    encode_plus = encode

    def batch_encode(self, batch_text_or_text_pairs: Sequence[Any], **keywords: Any) -> Any:
        """A batch whose elements are texts, or (first, second) pairs; keywords as in a call."""
        texts, pairs = unzip_pairs(batch_text_or_text_pairs, bool(keywords.get("is_split_into_words")), list, tuple)
        return self(texts, pairs, **keywords)

    def pad(
        self,
        encoded_inputs: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]],
        padding: Union[bool, str] = True,
        max_length: Optional[int] = None,
        padding_side: Optional[str] = None,
        pad_to_multiple_of: Optional[int] = None,
        return_attention_mask: Optional[bool] = None,
        return_tensors: Optional[str] = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Rows of one length from what calls returned: one mapping, or a list with one mapping per row.

        The columns calls return are padded, all others (labels) kept as they are. An `attention_mask` comes
        if the input has one, or with `return_attention_mask=True`.

        Raises:
            TypeError: something else than columns.
            ValueError: no `input_ids`, or rows with different columns.
        """
        columns, batched = collected(encoded_inputs)
        if return_attention_mask and "attention_mask" not in columns:
            columns["attention_mask"] = [[1] * len(row) for row in columns["input_ids"]]
        call = Call.read(
            {
                "padding": padding,
                "max_length": max_length,
                "padding_side": padding_side,
                "pad_to_multiple_of": pad_to_multiple_of,
                "return_tensors": return_tensors,
                "verbose": verbose,
            }
        )
        pad_to = call.pad_to(None, self.model_max_length)
        if pad_to is not None:
            columns, _ = self._padded(columns, None, pad_to, call.padding_side)
        return _delivered(columns, None, call, batched)

    def _encode(self, samples: Samples, call: Call) -> tuple[list[Encoding], Optional[list[Encoding]]]:
        words = call.is_split_into_words
        texts = samples.texts if samples.pairs is None else samples.texts + samples.pairs
        encoded = backend.encode(self._rust, texts, words=words, offsets=call.offsets or words)
        count = len(samples.texts)
        return encoded[:count], None if samples.pairs is None else encoded[count:]

    def _padded(
        self,
        columns: Mapping[str, Any],
        word_ids: Optional[list[Any]],
        pad_to: PadTo,
        padding_side: Optional[str],
    ) -> tuple[dict[str, Any], Optional[list[Any]]]:
        fills = {
            "input_ids": self.pad_token_id,
            "token_type_ids": self.pad_token_type_id,
            "attention_mask": 0,
            "special_tokens_mask": 1,
            "offset_mapping": (0, 0),
        }
        on = self.padding_side if padding_side is None else padding_side
        longest = max(map(len, columns["input_ids"]), default=0)
        length = rows.padded_length(longest, pad_to.length, pad_to.multiple)
        padded = {
            name: rows.pad_rows(column, length, fills[name], on) if name in fills else column
            for name, column in columns.items()
        }
        return padded, None if word_ids is None else rows.pad_rows(word_ids, length, None, on)


def _warn_of_default_length(batch: Batch, length: int) -> None:
    short = batch.shortened()
    if short:
        warnings.warn(
            f"{short} of {len(batch.first)} texts were cut to model_max_length={length}, though NeZha takes "
            "any length; pass max_length= to choose one",
            stacklevel=3,
        )


def _delivered(columns: Mapping[str, Any], word_ids: Optional[list[Any]], call: Call, batched: bool) -> Any:
    if call.return_tensors is not None:
        if not call.return_dict:
            raise ValueError("return_dict=False gives lists, got return_tensors as well; drop one of them")
        return BatchEncoding(to_tensors(columns, call.return_tensors), word_ids)
    if not batched:
        return BatchEncoding({name: column[0] for name, column in columns.items()}, word_ids)
    if not call.return_dict:
        return [dict(zip(columns, row)) for row in zip(*columns.values())]
    return BatchEncoding(columns, word_ids)
