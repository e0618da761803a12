"""What texts become: each kind of input has a stated answer, and offsets point into the caller's text."""

import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer

CLS, SEP, MASK, UNK = 101, 102, 103, 100


@pytest.fixture(scope="module")
def cased(vocab_file):
    return NeZhaTokenizer(vocab_file, do_lower_case=False)


def test_published_example(tokenizer):
    encoded = tokenizer("欢迎使用百度飞桨！")
    assert dict(encoded) == {
        "input_ids": [101, 3614, 6816, 886, 4500, 4636, 2428, 7607, 3444, 8013, 102],
        "token_type_ids": [0] * 11,
    }
    assert encoded.input_ids is encoded["input_ids"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" \t\n\u3000 ", []),
        ("今天Apple很好iPhone", ["今", "天", "apple", "很", "好", "iphone"]),
        ("Hélló", ["hello"]),
        ("ＡＢ", ["ａｂ"]),
        ("今\x00天\x07\u200b\ufffd好", ["今", "天", "好"]),
        ("ab\x00a", ["a", "##b", "##a"]),
        ("今\ud800天", ["今", "天"]),
        ("\ud83d\ude00", []),
        ("😀👍🏽好", ["[UNK]", "好"]),
        ("龘龘", ["[UNK]", "[UNK]"]),
        ("25℃", ["25", "##℃"]),
        ("①", ["①"]),
        ("a" * 100, ["a"] + ["##a"] * 99),
        ("a" * 101, ["[UNK]"]),
        ("[MASK]", ["[MASK]"]),
        ("今[MASK][MASK]天[SEP]", ["今", "[MASK]", "[MASK]", "天", "[SEP]"]),
        ("[mask]", ["[", "mask", "]"]),
        ("[CLS][PAD][UNK]", ["[CLS]", "[PAD]", "[UNK]"]),
    ],
)
def test_tokens_as_bert_gives_them(tokenizer, text, tokens):
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer(text).input_ids == [CLS, *tokenizer.convert_tokens_to_ids(tokens), SEP]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("今天Apple很好", ["今", "天", "[UNK]", "很", "好"]),
        ("NBA nba", ["[UNK]", "nba"]),
        ("25℃", ["25", "℃"]),
        ("😀👍🏽好", ["[UNK]", "[UNK]", "[UNK]", "好"]),
        ("Hello\u00adhello", ["[UNK]"]),
    ],
)
def test_without_lower_casing_ids_are_paddlenlps(cased, text, tokens):
    assert cased.tokenize(text) == tokens


def test_deviates_do_lower_case_is_true_for_the_official_names(vocab_file):
    for settings in NeZhaTokenizer.pretrained_init_configuration.values():
        ours = NeZhaTokenizer(vocab_file, **settings)
        assert ours.tokenize("NBA") == ["nba"]
        assert NeZhaTokenizer(vocab_file, **{**settings, "do_lower_case": False}).tokenize("NBA") == ["[UNK]"]


def test_deviates_literal_special_tokens_keep_their_ids(tokenizer, cased):
    # PaddleNLP splits them at their brackets.
    assert tokenizer("今[MASK][MASK]天").input_ids[2:4] == [MASK, MASK]
    assert cased("今[MASK][MASK]天").input_ids[2:4] == [MASK, MASK]


def test_symbols_can_be_split_or_not_independently(vocab_file):
    assert NeZhaTokenizer(vocab_file, split_symbols=True).tokenize("25℃") == ["25", "℃"]
    assert NeZhaTokenizer(vocab_file, do_lower_case=False, split_symbols=False).tokenize("25℃") == [
        "25",
        "##℃",
    ]


def test_chinese_and_accent_settings(vocab_file):
    joined = NeZhaTokenizer(vocab_file, tokenize_chinese_chars=False)
    assert joined.tokenize("今天") == ["[UNK]"]
    assert NeZhaTokenizer(vocab_file, strip_accents=False).tokenize("héllo") == ["[UNK]"]
    assert NeZhaTokenizer(vocab_file, do_lower_case=False, strip_accents=True).tokenize("héllo") == ["hello"]


@pytest.mark.parametrize(
    "text",
    [
        "今天  Apple   很好\t\tiPhone\n\n好",
        "\u3000今\u3000\u3000天 hello,world!",
        "ＡＢ　今天",
        "a😀  hello 😀",
        "   今天[MASK]  [MASK]好 ",
        "\u2028今\u2028天 applea  applesb",
    ],
)
def test_offsets_spell_every_token(tokenizer, text):
    encoded = tokenizer(text, return_offsets_mapping=True)
    assert encoded.offset_mapping[0] == encoded.offset_mapping[-1] == (0, 0)
    tokens = tokenizer.convert_ids_to_tokens(encoded.input_ids)
    pairs = list(zip(tokens, encoded.offset_mapping))[1:-1]
    assert pairs
    for token, (start, end) in pairs:
        spelled = text[start:end]
        assert token == "[UNK]" or spelled.lower() == token.replace("##", "") or spelled == token
    starts = [start for _, (start, _) in pairs]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Hélló", ["Hélló"]),
        ("he\u0301llo 好", ["he\u0301llo", "好"]),
        ("今\x00天\u200b好", ["今", "天", "好"]),
        ("今\ud800天", ["今", "天"]),
        ("龘龘", ["龘", "龘"]),
        ("😀👍🏽好", ["😀👍🏽", "好"]),
    ],
)
def test_offsets_where_cleaning_changed_the_text(tokenizer, text, spans):
    offsets = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False).offset_mapping
    assert [text[start:end] for start, end in offsets] == spans


def test_words_have_offsets_of_their_own_and_word_ids(tokenizer):
    encoded = tokenizer(
        [["今天", "[MASK]", "Appleb", "", "好"], ["hello", "\ud800"]],
        is_split_into_words=True,
        return_offsets_mapping=True,
        padding=True,
    )
    assert encoded.word_ids(0) == [None, 0, 0, 1, 2, 2, 4, None]
    assert encoded.word_ids(1) == [None, 0, None, None, None, None, None, None]
    assert encoded.offset_mapping[0] == [(0, 0), (0, 1), (1, 2), (0, 6), (0, 5), (5, 6), (0, 1), (0, 0)]
    assert encoded.input_ids[0][3] == MASK
    assert tokenizer(["今", "天"], is_split_into_words=True).input_ids == tokenizer("今天").input_ids
    with pytest.raises(ValueError, match="is_split_into_words=True"):
        tokenizer("今天").word_ids()


@pytest.mark.parametrize(
    ("text", "pair", "options", "parts"),
    [
        (None, None, {}, ["expected text to be str", "NoneType", "missing values"]),
        (3, None, {}, ["expected text to be str", "int"]),
        (b"abc", None, {}, ["bytes", "decode"]),
        (["好", float("nan")], None, {}, ["expected text[1] to be str", "float"]),
        ([["好", "好"]], None, {}, ["text[0]", "list", "is_split_into_words=True"]),
        (["好"], "好", {}, ["a list of texts", "a single text"]),
        ("好", [None], {}, ["a single text", "a list of texts"]),
        ("好", 3, {}, ["expected text_pair to be str", "int"]),
        ("好", None, {"is_split_into_words": True}, ["a list of words", "got str"]),
        (["好", 3], None, {"is_split_into_words": True}, ["text[1]", "int"]),
    ],
)
def test_what_is_no_text_is_refused(tokenizer, text, pair, options, parts):
    with pytest.raises(TypeError) as caught:
        tokenizer(text, pair, **options)
    for part in parts:
        assert part in str(caught.value)
    with pytest.raises(ValueError, match="got 1 for 2 texts; repeat a second text"):
        tokenizer(["好", "好"], ["好"])
    with pytest.raises(TypeError, match="one by one"):
        tokenizer.tokenize(["好"])


def test_equals_transformers(released_vocab_file):
    transformers = pytest.importorskip("transformers")
    texts = [
        "今天 Apple😀 25℃ ㎡ Ⅳ Ünïcödé [MASK] ＡＢＣ\u3000ß",
        "",
        "한국 ア か 𠀀\x00\ufeff",
        "don't a_b-c…“”",
    ]
    for lower in (True, False):
        theirs = transformers.BertTokenizer(str(released_vocab_file), do_lower_case=lower)
        ours = NeZhaTokenizer(released_vocab_file, do_lower_case=lower, split_symbols=False)
        assert [ours.tokenize(text) for text in texts] == [theirs.tokenize(text) for text in texts]
