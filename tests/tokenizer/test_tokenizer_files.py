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


def test_broken_json_is_named(folder):
    (folder / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected JSON in .*tokenizer_config\.json"):
        NeZhaTokenizer.from_pretrained(folder)


def test_missing_files_are_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"expected vocab\.txt .* found tokenizer\.json"):
        NeZhaTokenizer.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="'no-such' is no folder"):
        NeZhaTokenizer.from_pretrained("no-such")
