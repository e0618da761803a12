"""What stands at a [MASK]: ranked as the head has it, one list for each mask."""

import json

import numpy as np
import pytest

import paddle_nezha
from paddle_nezha._paddle import paddle
from paddle_nezha.heads import NeZhaForMaskedLM
from paddle_nezha.model import NeZhaModel
from paddle_nezha.pipelines.fill_mask import FillMask
from paddle_nezha.pipelines.lines import Source
from paddle_nezha.tokenizer import NeZhaTokenizer
from weights.demo import FOLDER

# Float32, sums in another order, on logits of about 4: measured 2e-7 on probabilities.
ROUNDING = 1e-5


@pytest.fixture(scope="module")
def parts():
    return NeZhaForMaskedLM.from_pretrained(FOLDER), NeZhaTokenizer.from_pretrained(FOLDER)


@pytest.fixture
def fill(parts):
    return FillMask(*parts)


def probabilities(parts, text):
    """float64 [masks, V] by the definition."""
    model, tokenizer = parts
    ids = tokenizer(text)["input_ids"]
    with paddle.no_grad():
        logits = model(paddle.to_tensor([ids])).numpy()[0].astype("float64")
    rows = np.exp(logits[np.array(ids) == tokenizer.mask_token_id])
    return rows / rows.sum(-1, keepdims=True)


def test_candidates_are_the_heads_in_its_order(parts, fill):
    texts = ["今天[MASK]上下了一场小雨。", "[MASK]天[MASK]上", "早上好，今天天气很[MASK]，我们去公园走一走吧。"]
    answers = fill(texts)
    assert [len(found) for found in answers] == [1, 2, 1]
    for text, found in zip(texts, answers):
        for candidates, truth in zip(found, probabilities(parts, text)):
            truth_offered = truth.copy()
            truth_offered[parts[1].all_special_ids] = 0
            best = np.argsort(-truth_offered)[:5]
            assert [candidate.id for candidate in candidates] == best.tolist()
            assert np.abs(np.array([candidate.probability for candidate in candidates]) - truth[best]).max() <= ROUNDING
            assert [candidate.token for candidate in candidates] == parts[1].convert_ids_to_tokens(best.tolist())
    assert [one.id for one in fill(texts[0])[0]] == [one.id for one in answers[0][0]]


def test_one_mask_gives_the_filled_text_and_several_give_none(fill):
    (candidates,) = fill("今天[MASK]上")
    assert [candidate.text for candidate in candidates] == [f"今天{candidate.token}上" for candidate in candidates]
    assert {candidate.text for found in fill("[MASK]天[MASK]上") for candidate in found} == {None}


@pytest.mark.parametrize("top_k", [1, 3, 773])
def test_top_k_says_how_many(parts, top_k):
    (candidates,) = FillMask(*parts, top_k=top_k)("今天[MASK]上")
    assert len({candidate.id for candidate in candidates}) == top_k
    scores = [candidate.probability for candidate in candidates]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("top_k", [0, 774])
def test_more_than_there_are_is_refused(parts, top_k):
    with pytest.raises(ValueError, match=rf"top_k must be in 1 \.\. 773, the tokens there are, but got {top_k}"):
        FillMask(*parts, top_k=top_k)


def favouring(parts, *tokens):
    """A head that answers these tokens, the first the most, whatever it reads."""
    model = NeZhaForMaskedLM.from_pretrained(FOLDER)
    with paddle.no_grad():
        bias = model.cls.predictions.decoder_bias.numpy()
        for place, token in enumerate(tokens):
            bias[parts[1].convert_tokens_to_ids(token)] += 1000 - 100 * place
        model.cls.predictions.decoder_bias.set_value(bias)
    return FillMask(model, parts[1], top_k=2)


def test_special_tokens_fill_nothing_and_keep_their_probability(parts):
    first, second = favouring(parts, "[UNK]", "早", "上")("今天[MASK]上")[0]
    assert (first.token, second.token) == ("早", "上") and first.probability < 1e-30


def test_pieces_are_shown_as_such_and_join_the_word_before_them(tmp_path, parts, build):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "我", "在"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokenizer = NeZhaTokenizer.from_pretrained(tmp_path)
    model = build(NeZhaForMaskedLM, vocab_size=12)  # its table was filled up
    with paddle.no_grad():
        model.cls.predictions.decoder_bias.set_value(100 * (np.arange(12) == 6).astype("float32"))
    fill = FillMask(model, tokenizer, top_k=4)
    for text in ("我在play[MASK] 在", "我在play [MASK] 在"):
        best = fill(text)[0][0]
        assert (best.token, best.text) == ("##ing", "我在playing 在")
    assert {candidate.id for candidate in fill("我[MASK]")[0]} == {5, 6, 7, 8}


# ---- what cannot be answered, and what is too long


def test_a_text_without_a_mask_is_refused_with_the_mask(fill):
    with pytest.raises(ValueError, match=r"text 1: expected \[MASK\] where a token is to be found, got '今天'"):
        fill("今天")
    with pytest.raises(ValueError, match=r"text 2: expected \[MASK\]"):
        fill(["[MASK]天", "天[mask]"])
    assert fill([]) == []


@pytest.mark.parametrize(("place", "kept"), [(0, slice(0, 18)), (50, slice(41, 59)), (99, slice(82, 100))])
def test_a_long_text_is_read_around_its_first_mask(parts, place, kept):
    characters = list("今天早上下了一场小雨" * 10)
    characters[place] = "[MASK]"
    (candidates,) = FillMask(*parts, max_length=20)("".join(characters))
    truth = probabilities(parts, "".join(characters[kept]))[0]
    assert abs(candidates[0].probability - truth[candidates[0].id]) <= ROUNDING
    assert candidates[0].text == "".join(characters).replace("[MASK]", candidates[0].token)


def test_masks_too_far_apart_are_refused_with_the_length_they_need(parts):
    text = "[MASK]" + "雨" * 40 + "[MASK]"
    with pytest.raises(ValueError, match=r"text 2: it has 42 tokens.*give --max-length \(max_length=\) 44"):
        FillMask(*parts, max_length=20)(["[MASK]", text])
    assert len(FillMask(*parts, max_length=44)(text)) == 2


def test_longer_than_any_absolute_position(parts):
    assert len(FillMask(*parts, max_length=902)("雨" * 899 + "[MASK]")[0]) == 5


# ---- opening


def test_the_pipeline_opens_a_folder(fill):
    opened = paddle_nezha.pipeline("fill-mask", model=FOLDER, top_k=2)
    assert [one.id for one in opened("今天[MASK]上")[0]] == [one.id for one in fill("今天[MASK]上")[0][:2]]


def test_a_head_that_would_be_random_is_refused(build, parts, tmp_path):
    build(NeZhaModel, vocab_size=778).save_pretrained(tmp_path)
    parts[1].save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds no cls.predictions, which would be random: take a checkpoint with"):
        paddle_nezha.pipeline("fill-mask", tmp_path)


# ---- files


def test_a_file_is_answered_line_by_line(fill, tmp_path):
    texts = ["今天[MASK]上", "[MASK]天[MASK]上", "雨[MASK]" * 3] * 20
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    done = fill.run(Source(tmp_path / "texts.jsonl"), tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert done.account.lines == 60 and [item["line"] for item in found] == list(range(1, 61))
    for item, text, answer in zip(found, texts, fill(texts)):
        assert item["text"] == text
        assert item["masks"] == [[vars(candidate) for candidate in candidates] for candidates in answer]


def test_half_a_surrogate_is_written_as_json_has_it(fill, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "\\ud800[MASK]"}\n')
    fill.run(Source(tmp_path / "texts.jsonl"), tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_bytes())["text"] == "\ud800[MASK]"


def test_a_line_without_a_mask_is_refused_before_anything_is_computed(fill, tmp_path, monkeypatch):
    monkeypatch.setattr(fill, "_window", None)
    (tmp_path / "{0}.txt").write_text("[MASK]\n今天\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"\{0\}\.txt, line 2: expected \[MASK\]"):
        fill.run(Source(tmp_path / "{0}.txt"), tmp_path / "out.jsonl")
    assert [item.name for item in tmp_path.iterdir()] == ["{0}.txt"]
