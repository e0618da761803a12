"""Words of sentences against the segmenter itself, token by token."""

import re
import sys

import numpy as np
import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.corpus import words as words_module
from paddle_nezha.training.corpus.errors import CorpusError
from paddle_nezha.training.corpus.words import HAN, Segmenter, WordTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HAN_TEXT = (
    "今天天气很好我们去公园散步自然语言处理是人工智能的重要方向中华人民共和国成立于一九四九年数学家研究数量结构变化以及空间"
    "北京大学的学生喜欢卡拉恤衫和维生素這個網站需要繁體字龘𠀀𠮷𫝀﨎"
)
LATIN = [
    "hello",
    "World",
    "playing",
    "naïve",
    "Café",
    "iPhone14",
    "3.14",
    "2024",
    "https://x.cn/?a=1",
    "don't",
    "ＡＢＣ１２３",
]
MIXED = (
    "😀 \U0001f468\u200d\U0001f469\u200d\U0001f467 ， 。 …… “ ” ！？ ￥ ℃ é \u0301 中\u0301 [MASK] [SEP] ## ##ing "
    "ß İ ﬁ 〇 𝔘 ไทย 한국 かな \U00030000"
).split(" ") + ["\u200b", "\x00", "\x07", "\t", "\u3000", "\u2028"]


def sentences(count, seed):
    """Mixed sentences: Han runs of two kinds, Latin, digits, emoji, full width, extension B, marks, controls."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        parts = []
        for _ in range(rng.integers(1, 12)):
            kind = rng.integers(4)
            if kind < 2:
                first = rng.integers(len(HAN_TEXT))
                parts.append(HAN_TEXT[first : first + rng.integers(1, 12)])
            elif kind == 2:
                parts.append(LATIN[rng.integers(len(LATIN))])
            else:
                parts.append(MIXED[rng.integers(len(MIXED))])
            parts.append(" " * int(rng.integers(5) == 0))
        drawn.append("".join(parts))
    return drawn


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Most of the characters above, and pieces of Latin words."""
    known = sorted(set(HAN_TEXT) - set("龘𠮷學網") | set("，。“”！？…[]#.:/'?=-¥😀🙂"))
    pieces = [f"{prefix}{char}" for prefix in ("", "##") for char in "abcdefghijklmnoprstuvwxyz0123456789"]
    words = ["hello", "play", "##ing", "mask", "ca", "##fe", "20", "##24", "https"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *known, *pieces, *words]) + "\n", encoding="utf-8")
    return path


TOKENIZERS = {
    "lower": {},
    "cased": {"do_lower_case": False},
    "accents": {"strip_accents": False},
    "han joined": {"tokenize_chinese_chars": False},
}


def by_definition(rust, segmenter, sentence):
    """(ids, word starts) of a sentence by the tokenizer's offsets and one call of the segmenter for each Han span."""
    encoding = rust.encode(sentence, add_special_tokens=False)
    word_of = {}  # character: (number of its word or stretch, is it Han)
    for match in re.finditer(f"[{HAN}]+|[^{HAN}]+", sentence):
        is_han = re.match(f"[{HAN}]", match[0]) is not None
        words = segmenter(match[0]) if is_han else [match[0]]
        at = match.start()
        for word in words:
            word_of.update({place: (at, is_han) for place in range(at, at + len(word))})
            at += len(word)
        assert at == match.end()
    starts, last = [], None
    for token, (first, _) in zip(encoding.tokens, encoding.offsets):
        word, is_han = word_of[first]
        starts.append(int(word != last or not (is_han or (token.startswith("##") and token != "##"))))
        last = word
    return encoding.ids, starts


def direct(name):
    if name == "rjieba":
        return pytest.importorskip("rjieba").cut
    if name == "jieba":
        Segmenter("jieba")  # its import warns, which Segmenter keeps to itself
        return sys.modules["jieba"].lcut
    return list


def rows(found):
    tokens, starts, lengths = found
    ends = np.cumsum(lengths)
    return [(tokens[end - size : end].tolist(), starts[end - size : end].tolist()) for end, size in zip(ends, lengths)]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", ["rjieba", "none"])
def test_2000_mixed_sentences_are_aligned_to_the_segmenter(vocabulary, name, kind):
    cut = direct(name)
    tokenizer = NeZhaTokenizer(vocabulary, **TOKENIZERS[kind])
    texts = sentences(2000, seed=5)
    words = WordTokenizer(tokenizer, Segmenter(name))
    assert words.is_by_units == (kind != "han joined")
    found = rows(words(texts))
    rust = tokenizer._rust
    rust.encode_special_tokens = True
    wrong = [text for text, row in zip(texts, found) if row != by_definition(rust, cut, text)]
    assert wrong == []
    assert sum(len(ids) for ids, _ in found) > 12_000


def test_jieba_aligns_too(vocabulary):
    cut = direct("jieba")
    tokenizer = NeZhaTokenizer(vocabulary)
    texts = sentences(200, seed=6)
    found = rows(WordTokenizer(tokenizer, Segmenter("jieba"))(texts))
    tokenizer._rust.encode_special_tokens = True
    assert [text for text, row in zip(texts, found) if row != by_definition(tokenizer._rust, cut, text)] == []


def test_batches_and_what_is_remembered_change_nothing(vocabulary, monkeypatch):
    texts = sentences(300, seed=7)
    tokenizer, segmenter = NeZhaTokenizer(vocabulary), Segmenter("none")
    whole = rows(WordTokenizer(tokenizer, segmenter)(texts))
    monkeypatch.setattr("paddle_nezha.training.corpus.words._KEPT_CHARACTERS", 50)
    forgetful = WordTokenizer(tokenizer, segmenter)
    assert [row for text in texts for row in rows(forgetful([text]))] == whole
    assert len(forgetful._known) < 100


def marked(tokenizer, words, text):
    tokens, starts, _ = words([text])
    told = tokenizer.convert_ids_to_tokens(tokens.tolist())
    return "".join(f"{'|' if start else ' '}{token}" for token, start in zip(told, starts))[1:]


def test_words_of_each_kind(vocabulary):
    pytest.importorskip("rjieba")
    tokenizer = NeZhaTokenizer(vocabulary)
    words = WordTokenizer(tokenizer, Segmenter("rjieba"))
    assert marked(tokenizer, words, "我们去北京大学 playing, Café 2024。") == (
        "我 们|去|北 京 大 学|play ##ing|[UNK]|ca ##fe|20 ##24|。"
    )
    assert marked(tokenizer, WordTokenizer(tokenizer, Segmenter("none")), "我们play") == "我|们|play"


def test_special_tokens_in_a_text_are_text(vocabulary):
    tokenizer = NeZhaTokenizer(vocabulary, additional_special_tokens=["[NEW]"])
    words = WordTokenizer(tokenizer, Segmenter("none"))
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    tokens, _, lengths = words([*SPECIAL, "a[MASK]b[CLS]今[SEP]", "[NEW]"])
    assert not special & set(tokens.tolist()) and lengths.all()
    assert tokenizer("[MASK]", add_special_tokens=False)["input_ids"] == [tokenizer.mask_token_id]  # as it was


def test_a_word_that_the_vocabulary_has_as_a_special_token_is_unknown(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "blank", "a"]) + "\n", encoding="utf-8")
    tokenizer = NeZhaTokenizer(path, mask_token="blank")
    tokens, _, _ = WordTokenizer(tokenizer, Segmenter("none"))(["a blank a"])
    assert tokens.tolist() == [5, 1, 5]


def test_an_added_token_is_found_across_words(vocabulary):
    pytest.importorskip("rjieba")
    tokenizer = NeZhaTokenizer(vocabulary)
    tokenizer.add_tokens(["去北京", "play"])
    words = WordTokenizer(tokenizer, Segmenter("rjieba"))
    assert marked(tokenizer, words, "我们去北京大学play") == "我 们|去北京|大 学|play"
    tokenizer.add_tokens("京")
    words = WordTokenizer(tokenizer, Segmenter("rjieba"))
    assert marked(tokenizer, words, "在北京大学") == "[UNK]|北 京 大 学"


def test_more_tokens_than_16_bits_number(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *(f"w{number}" for number in range(65_532)), "今"]), encoding="utf-8")
    words = WordTokenizer(NeZhaTokenizer(path), Segmenter("none"))
    tokens, starts, lengths = words(["今今", ""])
    assert (tokens.dtype, starts.dtype, lengths.dtype) == (np.uint32, np.uint8, np.int64)
    assert (tokens.tolist(), starts.tolist(), lengths.tolist()) == ([65_537] * 2, [1, 1], [2, 0])


def test_no_sentence_at_all(vocabulary):
    assert [len(part) for part in WordTokenizer(NeZhaTokenizer(vocabulary), Segmenter("none"))([])] == [0, 0, 0]


def test_every_han_character_comes_back_from_the_segmenter():
    pytest.importorskip("rjieba")
    every = [chr(code) for code in range(0x3400, 0x2FA20) if re.match(f"[{HAN}]", chr(code))]
    span = "".join(every)
    assert len(every) > 80_000
    assert ["".join(words) for words in Segmenter("rjieba").words([span, "今天", span[::-1]])] == [
        span,
        "今天",
        span[::-1],
    ]


def test_without_a_segmenter_the_message_says_how_to_get_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    assert Segmenter().name == "jieba"
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(
        CorpusError, match=r"rjieba or jieba .* not installed: pip install 'paddle_nezha\[train\]'.*none"
    ):
        Segmenter()
    with pytest.raises(CorpusError, match="expected jieba for word boundaries"):
        Segmenter("jieba")
    assert (Segmenter("none").name, Segmenter("none").version) == ("none", None)
    with pytest.raises(CorpusError, match="one of rjieba, jieba, none, got 'pkuseg'"):
        Segmenter("pkuseg")


def test_a_segmenter_that_loses_text_is_refused(monkeypatch):
    monkeypatch.setitem(words_module._CUTS, "none", lambda: lambda text: list(text[1:]))
    with pytest.raises(CorpusError, match="does not give back the text it cut"):
        Segmenter("none").words(["今天"])
