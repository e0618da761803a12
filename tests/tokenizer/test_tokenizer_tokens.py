"""Tokens, ids and back; framing; added tokens; the class attributes PaddleNLP scripts read."""

import numpy as np
import pytest
from tokenizers import AddedToken

from paddle_nezha.tokenizer import NeZhaTokenizer


def test_special_tokens_and_ids(tokenizer):
    assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id] == [0, 100, 101]
    assert [tokenizer.sep_token_id, tokenizer.mask_token_id, tokenizer.pad_token_type_id] == [102, 103, 0]
    assert [tokenizer.cls_token, tokenizer.mask_token] == ["[CLS]", "[MASK]"]
    assert tokenizer.all_special_tokens == ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]
    assert tokenizer.all_special_ids == [100, 102, 0, 101, 103]
    assert tokenizer.special_tokens_map["sep_token"] == "[SEP]"


def test_conversions(tokenizer):
    assert tokenizer.convert_tokens_to_ids("欢") == 3614
    assert tokenizer.convert_tokens_to_ids(["欢", "龘", "[MASK]"]) == [3614, 100, 103]
    assert tokenizer.convert_tokens_to_ids(token for token in "欢飞") == [3614, 7607]
    assert tokenizer.convert_ids_to_tokens(np.int64(3614)) == "欢"
    assert tokenizer.convert_ids_to_tokens(np.array([101, 3614, 0])) == ["[CLS]", "欢", "[PAD]"]
    assert tokenizer.convert_ids_to_tokens([101, 3614, 0], skip_special_tokens=True) == ["欢"]
    assert tokenizer.convert_tokens_to_string(["apple", "##b", "天"]) == "appleb 天"
    assert tokenizer.get_vocab()["飞"] == 7607


@pytest.mark.parametrize("ids", [21128, -1, [101, -100], [[101]], [1.5], None, "x"])
def test_ids_outside_the_vocabulary_are_refused(tokenizer, ids):
    with pytest.raises(ValueError, match=r"in \[0, 21128\)"):
        tokenizer.convert_ids_to_tokens(ids)


def test_decode(tokenizer):
    ids = tokenizer("Hello, world! 今天[MASK] 龘").input_ids
    assert tokenizer.decode(ids) == "[CLS] hello, world! 今 天 [MASK] [UNK] [SEP]"
    assert tokenizer.decode(np.array(ids), skip_special_tokens=True) == "hello, world! 今 天"
    kept = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert kept == "hello , world ! 今 天"
    assert tokenizer.batch_decode([ids[:2], [7607]]) == ["[CLS] hello", "飞"]
    assert tokenizer.decode(7607) == "飞" and tokenizer.decode([]) == ""


def test_framing(tokenizer):
    assert tokenizer.build_inputs_with_special_tokens([5, 6]) == [101, 5, 6, 102]
    assert tokenizer.build_inputs_with_special_tokens([5], [6]) == [101, 5, 102, 6, 102]
    assert tokenizer.build_offset_mapping_with_special_tokens([(0, 2)], [(1, 2)]) == [
        (0, 0), (0, 2), (0, 0), (1, 2), (0, 0),
    ]  # fmt: skip
    assert tokenizer.create_token_type_ids_from_sequences([5, 6]) == [0, 0, 0, 0]
    assert tokenizer.create_token_type_ids_from_sequences([5], [6, 7]) == [0, 0, 0, 1, 1, 1]
    assert tokenizer.create_token_type_ids_from_sequences([5], []) == [0, 0, 0, 1]
    assert [tokenizer.num_special_tokens_to_add(), tokenizer.num_special_tokens_to_add(pair=True)] == [2, 3]


def test_special_tokens_mask(tokenizer):
    assert tokenizer.get_special_tokens_mask([5, 103]) == [1, 0, 0, 1]
    assert tokenizer.get_special_tokens_mask([5], [6]) == [1, 0, 1, 0, 1]
    framed = [101, 5, 103, 100, 102, 0]
    assert tokenizer.get_special_tokens_mask(framed, already_has_special_tokens=True) == [1, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="token_ids_1"):
        tokenizer.get_special_tokens_mask(framed, [5], already_has_special_tokens=True)


def test_added_tokens_are_matched_whole(own_tokenizer):
    assert own_tokenizer.add_tokens(["新疫苗", "Nezha", "天"]) == 2
    assert own_tokenizer.add_tokens(["[E1]", "[unused5]"], special_tokens=True) == 1
    assert own_tokenizer.add_tokens("新疫苗") == 0
    assert (own_tokenizer.vocab_size, len(own_tokenizer)) == (21128, 21131)
    heaven = own_tokenizer.convert_tokens_to_ids("天")
    text = "打新疫苗新疫苗nezha NEZHAs[E1][unused5]天"
    encoded = own_tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert encoded.input_ids == [100, 21128, 21128, 21129, 21129, 100, 21130, 5, heaven]
    spelled = [text[start:end] for start, end in encoded.offset_mapping]
    assert spelled == ["打", "新疫苗", "新疫苗", "nezha", "NEZHA", "s", "[E1]", "[unused5]", "天"]
    assert own_tokenizer.convert_tokens_to_ids("Nezha") == 21129
    assert own_tokenizer.additional_special_tokens == ["[E1]", "[unused5]"]
    assert own_tokenizer.decode([21128, 21130], skip_special_tokens=True) == "新疫苗"
    assert own_tokenizer.tokenize("[e1]")[0] == "["


def test_added_token_keeps_its_flags(own_tokenizer):
    own_tokenizer.add_tokens(AddedToken("nez", single_word=True))
    assert own_tokenizer.tokenize("nez nezs") == ["nez", "[UNK]"]


@pytest.mark.parametrize("tokens", [[" "], "", ["好", "\ud800"], [AddedToken(" ")], [3], None, [["E"]]])
def test_tokens_no_text_holds_are_not_added(own_tokenizer, tokens):
    with pytest.raises(ValueError, match="expected a token to add to be text, not blank .*; leave it out"):
        own_tokenizer.add_tokens(tokens)
    assert len(own_tokenizer) == 21128


def test_add_special_tokens(own_tokenizer):
    given = {"additional_special_tokens": ["[E1]", "[E2]"], "pad_token": "[PAD]", "mask_token": AddedToken("[MASK]")}
    assert own_tokenizer.add_special_tokens(given) == 2
    assert set(given) == {"additional_special_tokens", "pad_token", "mask_token"}
    assert own_tokenizer.add_special_tokens({"additional_special_tokens": ["[E3]"]}) == 1
    assert own_tokenizer.additional_special_tokens == ["[E1]", "[E2]", "[E3]"]
    assert own_tokenizer("今[E2]", add_special_tokens=False).input_ids[1:] == [21129]
    assert own_tokenizer.add_special_tokens({}) == 0


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (
            {"mask_token": "[E]"},
            r"expected mask_token='\[MASK\]' to stay, got '\[E\]'; make the tokenizer with mask_token=",
        ),
        ({"eos_token": "[E]"}, "got 'eos_token'; put the token into additional_special_tokens"),
        ({"additional_special_tokens": "[E]"}, r"to be a list of texts.*got '\[E\]'; put one token in a list"),
        (["[E]"], r"expected a dict .*got list; use add_tokens\(tokens, special_tokens=True\)"),
    ],
)
def test_add_special_tokens_refuses(own_tokenizer, given, part):
    with pytest.raises((TypeError, ValueError), match=part):
        own_tokenizer.add_special_tokens(given)
    assert len(own_tokenizer) == 21128


def test_vocab_as_paddlenlp_gives_it(own_tokenizer):
    own_tokenizer.add_tokens(["新疫苗"])
    vocab = own_tokenizer.vocab
    assert len(vocab) == len(vocab.idx_to_token) == len(vocab.token_to_idx) == 21128
    assert (vocab.token_to_idx["飞"], vocab.idx_to_token[7607], vocab["飞"]) == (7607, "飞", 7607)
    assert vocab.to_indices(["飞", "龘"]) == vocab["飞", "龘"] == [7607, 100]
    assert vocab.to_tokens(np.array([7607, 103])) == ["飞", "[MASK]"] and vocab.to_tokens(0) == "[PAD]"
    assert "飞" in vocab and "新疫苗" not in vocab
    with pytest.raises(ValueError, match=r"in \[0, 21128\), got 21128; added tokens"):
        vocab.to_tokens([21128])
    vocab.token_to_idx.clear()
    assert own_tokenizer.convert_tokens_to_ids("飞") == 7607


@pytest.mark.parametrize("tokens", [None, 3, ["飞", None], [["飞"]]])
def test_what_is_no_token_has_no_id(tokenizer, tokens):
    with pytest.raises(TypeError, match="expected tokens as str, got (NoneType|int|list)"):
        tokenizer.convert_tokens_to_ids(tokens)


def test_class_attributes_of_paddlenlp():
    names = ["nezha-base-chinese", "nezha-large-chinese", "nezha-base-wwm-chinese", "nezha-large-wwm-chinese"]
    assert NeZhaTokenizer.resource_files_names == {"vocab_file": "vocab.txt"}
    assert NeZhaTokenizer.pretrained_init_configuration == {name: {"do_lower_case": True} for name in names}
    assert set(NeZhaTokenizer.pretrained_resource_files_map["vocab_file"]) == set(names)
    assert NeZhaTokenizer.max_model_input_sizes == {name: 512 for name in names}
