"""Saving and opening folders, our own and those PaddleNLP and HF write."""

import json

import pytest
from tokenizers import AddedToken

from paddle_nezha.tokenizer import NeZhaTokenizer


def written(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path, vocab_file):
    (tmp_path / "vocab.txt").write_bytes(vocab_file.read_bytes())
    return tmp_path


SETTINGS = {
    "do_lower_case": False,
    "strip_accents": True,
    "tokenize_chinese_chars": False,
    "split_symbols": False,
    "model_max_length": 77,
    "padding_side": "left",
    "clean_up_tokenization_spaces": False,
}


@pytest.mark.parametrize("options", [{}, SETTINGS, {"model_max_length": None, "split_symbols": True}])
def test_every_setting_survives(vocab_file, tmp_path, options):
    before = NeZhaTokenizer(vocab_file, additional_special_tokens=["[E]", "[unused7]"], **options)
    before.add_tokens(["新疫苗", AddedToken("nez", single_word=True)])
    before.save_pretrained(tmp_path / "一 folder")
    after = NeZhaTokenizer.from_pretrained(tmp_path / "一 folder")
    again = tmp_path / "again"
    after.save_pretrained(again)
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        assert (again / name).read_bytes() == (tmp_path / "一 folder" / name).read_bytes()
    texts = ["Hélló 25℃ 今天[E][unused7]新疫苗 nez nezs NBA", "[MASK]"]
    assert after(texts, padding=True) == before(texts, padding=True)
    assert (repr(after), after.get_vocab()) == (repr(before), before.get_vocab())
    assert after.all_special_tokens == before.all_special_tokens


def test_files_and_their_names(vocab_file, tmp_path):
    tokenizer = NeZhaTokenizer(vocab_file)
    (tmp_path / "added_tokens.json").write_text('{"old": 21128}', encoding="utf-8")
    paths = tokenizer.save_pretrained(tmp_path)
    names = ["vocab.txt", "tokenizer_config.json", "special_tokens_map.json"]
    assert paths == tuple(str(tmp_path / name) for name in names)
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(names)
    assert (tmp_path / "vocab.txt").read_bytes() == vocab_file.read_bytes()
    assert json.loads((tmp_path / names[1]).read_text(encoding="utf-8"))["do_lower_case"] is True


def test_a_failed_save_leaves_the_old_files(vocab_file, tmp_path, monkeypatch):
    NeZhaTokenizer(vocab_file).save_pretrained(tmp_path)
    before = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    cased = NeZhaTokenizer(vocab_file, do_lower_case=False)

    def full_disk(source, target):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        cased.save_pretrained(tmp_path)
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == before


def test_a_bare_vocabulary_opens_lower_casing(folder):
    assert NeZhaTokenizer.from_pretrained(folder).tokenize("NBA 25℃") == ["nba", "25", "##℃"]


@pytest.mark.parametrize(
    ("config", "tokens", "length"),
    [
        ({"do_lower_case": False, "init_class": "NeZhaTokenizer", "max_len": 99}, ["[UNK]", "25", "℃"], 99),
        ({"do_lower_case": True, "tokenizer_class": "NeZhaTokenizer"}, ["nba", "25", "℃"], 512),
        (
            {
                "do_lower_case": False,
                "tokenizer_class": "BertTokenizer",
                "do_basic_tokenize": True,
                "never_split": None,
                "model_max_length": int(1e30),
                "unk_token": {"content": "[UNK]", "lstrip": False, "__type": "AddedToken"},
                "name_or_path": "somewhere",
            },
            ["[UNK]", "25", "##℃"],
            None,
        ),
    ],
    ids=["PaddleNLP", "PaddleNLP lower-cased", "HF"],
)
def test_folders_of_others_give_their_ids(folder, config, tokens, length):
    tokenizer = NeZhaTokenizer.from_pretrained(written(folder, tokenizer_config=config))
    assert tokenizer.tokenize("NBA 25℃") == tokens
    assert tokenizer.model_max_length == length
    assert NeZhaTokenizer.from_pretrained(folder, do_lower_case=True).tokenize("NBA") == ["nba"]


def test_settings_of_others_are_written_back(folder, tmp_path):
    config = {"tokenizer_class": "BertTokenizer", "do_basic_tokenize": True, "house": 3, "name_or_path": "x"}
    tokenizer = NeZhaTokenizer.from_pretrained(written(folder, tokenizer_config=config))
    tokenizer.save_pretrained(tmp_path / "new")
    saved = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (saved["house"], saved["do_basic_tokenize"]) == (3, True)
    assert "name_or_path" not in saved
    assert NeZhaTokenizer.from_pretrained(tmp_path / "new").tokenize("25℃") == ["25", "##℃"]


def test_added_tokens_of_others(folder):
    written(folder, added_tokens={"新疫苗": 21128, "[E]": 21129})
    written(folder, special_tokens_map={"additional_special_tokens": ["[E]"], "mask_token": "[unused9]"})
    tokenizer = NeZhaTokenizer.from_pretrained(folder)
    assert tokenizer("新疫苗[E]", add_special_tokens=False).input_ids == [21128, 21129]
    assert (tokenizer.mask_token_id, tokenizer.additional_special_tokens) == (9, ["[E]"])
    decoder = {
        "103": {"content": "[MASK]", "special": True, "normalized": False},
        "21128": {"content": "Nez", "special": False, "normalized": True},
    }
    tokenizer = NeZhaTokenizer.from_pretrained(written(folder, tokenizer_config={"added_tokens_decoder": decoder}))
    assert tokenizer("nez[E]", add_special_tokens=False).input_ids == [21128, 21129]


@pytest.mark.parametrize(
    ("files", "part"),
    [
        (
            {"tokenizer_config": {"do_basic_tokenize": False}},
            "do_basic_tokenize=False, which gives other ids",
        ),
        ({"tokenizer_config": {"truncation_side": "left"}}, "truncation_side='left'"),
        ({"tokenizer_config": {"never_split": ["x"]}}, "never_split=None"),
        ({"tokenizer_config": [1]}, "expected a JSON object .* got list"),
        ({"added_tokens": {"新疫苗": 21130}}, "the id 21130 where 21128 comes next"),
        ({"special_tokens_map": {"cls_token": "<s>"}}, "does not hold '<s>'"),
    ],
)
def test_folders_that_cannot_be_honoured_are_refused(folder, files, part):
    with pytest.raises(ValueError, match=part):
        NeZhaTokenizer.from_pretrained(written(folder, **files))


def decoder(**tokens):
    return {"added_tokens_decoder": {number.strip("n"): token for number, token in tokens.items()}}


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("tokenizer_config", {"model_max_length": "512"}, "model_max_length in FILE to be a whole number .*got '512'"),
        ("tokenizer_config", {"model_max_length": [1]}, r"model_max_length in FILE .*got \[1\]"),
        ("tokenizer_config", {"model_max_length": 0}, "model_max_length in FILE .*got 0"),
        ("tokenizer_config", {"max_len": -1}, "max_len in FILE .*got -1"),
        ("tokenizer_config", {"do_lower_case": "yes"}, "do_lower_case in FILE to be True or False, got 'yes'"),
        ("tokenizer_config", {"strip_accents": "x"}, "strip_accents in FILE to be True, False or None, got 'x'"),
        ("tokenizer_config", {"padding_side": 3}, "padding_side in FILE to be 'left' or 'right', got 3"),
        ("tokenizer_config", {"unk_token": ["x"]}, r"unk_token in FILE to be text, .*got \['x'\]"),
        ("special_tokens_map", {"mask_token": {"content": 3}}, "mask_token in FILE to be text, .*got 3"),
        (
            "special_tokens_map",
            {"additional_special_tokens": "[X]"},
            r"additional_special_tokens in FILE to be a list of texts.*got '\[X\]'",
        ),
        (
            "tokenizer_config",
            {"added_tokens_decoder": [1]},
            r"added_tokens_decoder in FILE to be an object .*got \[1\]",
        ),
        ("tokenizer_config", decoder(n21128="zz"), r"added_tokens_decoder\['21128'\] in FILE .*got 'zz'"),
        ("tokenizer_config", decoder(x={"content": "zz"}), "each key of added_tokens_decoder in FILE .*got 'x'"),
        ("tokenizer_config", decoder(n021128={"content": "zz"}), "to be an id in digits, got '021128'"),
        ("tokenizer_config", decoder(n21128={"special": True}), r"\['21128'\]\.content in FILE to be text.*got None"),
        ("tokenizer_config", decoder(n21128={"content": "\ud800"}), r"\.content in FILE .*lone surrogates, got"),
        (
            "tokenizer_config",
            decoder(n21128={"content": "z", "special": 3}),
            r"\.special in FILE .*true or false, got 3",
        ),
        (
            "tokenizer_config",
            decoder(n21128={"content": "z", "x": True}),
            r"\.x in FILE to be one of lstrip, .*got True",
        ),
        ("added_tokens", {"新甲": 21128, "新乙": 21128}, "the id of '新乙' in FILE .*not that of '新甲', got 21128"),
        ("added_tokens", {"新甲": "21128"}, "the id of '新甲' in FILE to be a whole number of at least 0, got '21128'"),
        ("added_tokens", {"新甲": True}, "the id of '新甲' in FILE .*got True"),
        ("added_tokens", {" ": 21128}, "each key in FILE to be text, not blank .*got ' '"),
        ("added_tokens", {"新甲": 778}, "FILE gives '新甲' the id 778 where 21128 comes next"),
    ],
)
def test_each_value_of_a_file_is_checked(folder, file, content, part):
    said = part.replace("FILE", rf"'[^']*{file}\.json'") + r"[^;]*; \w+"
    with pytest.raises(ValueError, match=said):
        NeZhaTokenizer.from_pretrained(written(folder, **{file: content}))


@pytest.mark.parametrize("depth", [60, 100_000])
def test_deep_json_is_refused(folder, depth):
    (folder / "tokenizer_config.json").write_text('{"a":' + "[" * depth + "]" * depth + "}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"at most 50 lists and objects .*tokenizer_config\.json', got more; correct"):
        NeZhaTokenizer.from_pretrained(folder)


def test_what_may_be_as_deep_as_said_is_written_back(folder, tmp_path):
    deep = json.loads("[" * 49 + "]" * 49)
    config = {"deep": deep, "surrogate": "\ud800", "model_max_length": 77.0}
    NeZhaTokenizer.from_pretrained(written(folder, tokenizer_config=config)).save_pretrained(tmp_path / "new")
    saved = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert {name: saved[name] for name in config} == config


def test_a_key_given_twice_is_refused(folder):
    (folder / "added_tokens.json").write_text('{"新甲": 21128, "新甲": 21129}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"added_tokens\.json', got the key '新甲' twice; restore"):
        NeZhaTokenizer.from_pretrained(folder)


def test_additional_special_tokens_in_place_of_the_folders(folder):
    written(folder, special_tokens_map={"additional_special_tokens": ["[E]"]})
    tokens = ["[F]", AddedToken("[G]", special=True, normalized=False)]
    tokenizer = NeZhaTokenizer.from_pretrained(folder, additional_special_tokens=tokens)
    assert tokenizer.additional_special_tokens == ["[F]", "[G]"]
    with pytest.raises(ValueError, match="expected additional_special_tokens to be a list"):
        NeZhaTokenizer.from_pretrained(folder, additional_special_tokens="[F]")


def test_save_vocabulary(own_tokenizer, tmp_path, vocab_file):
    own_tokenizer.add_tokens(["新疫苗"])
    assert own_tokenizer.save_vocabulary(tmp_path / "new") == (str(tmp_path / "new" / "vocab.txt"),)
    assert (tmp_path / "new" / "vocab.txt").read_bytes() == vocab_file.read_bytes()
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_broken_json_is_named(folder):
    (folder / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected JSON in .*tokenizer_config\.json"):
        NeZhaTokenizer.from_pretrained(folder)


def test_missing_files_are_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        FileNotFoundError, match=r"expected vocab\.txt .*copy the vocabulary there\. Found tokenizer\.json"
    ):
        NeZhaTokenizer.from_pretrained(tmp_path)
    for number in range(40):
        (tmp_path / f"other {number:02}").mkdir()
    with pytest.raises(FileNotFoundError, match=r"Found other 00, .*, other 19 and 21 more$"):
        NeZhaTokenizer.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no folder 'no-such'"):
        NeZhaTokenizer.from_pretrained("no-such")
