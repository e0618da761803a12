"""Where a checkpoint is looked for, in which order, and what is held of it afterwards."""

import hashlib
import io
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import toys
from conftest import publish
from loopback import Loopback, Served

from paddle_nezha.checkpoint import CheckpointError
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.hub import (
    FetchError,
    cache_home,
    check_pin,
    contents,
    fetch,
    list_entries,
    pin,
    read_pin,
    registry,
    sha256_of,
)

GOOD = hashlib.sha256(toys.WEIGHTS).hexdigest()
OTHER = toys.WEIGHTS[:-5] + bytes(4) + b"."  # as long, and as plausible
DEMO = Path(__file__).resolve().parents[2] / "weights" / "nezha-seeded-demo"
OURS = {"config.json", "vocab.txt", "vocab.txt.sha256", "model_state.pdparams", "model_state.pdparams.sha256"}


@pytest.fixture
def no_sockets(monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def put_at_paddlenlp(content=toys.WEIGHTS, name="model_state.pdparams"):
    path = Path(os.environ["PPNLP_HOME"]) / "models" / "toy" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def official(monkeypatch, server, toy):
    """The toy is one of the official names, which PaddleNLP's cache may hold. No weights are served."""
    monkeypatch.setattr("paddle_nezha.hub.places.BCEBOS", registry.ENTRIES["toy"].host)
    return server


# ---- what a folder holds


def test_the_folder_opens(server, monkeypatch):
    served = {name: (DEMO / name).read_bytes() for name in ("vocab.txt", "model_state.pdparams")}
    config = NeZhaConfig.from_pretrained(DEMO)
    files = tuple(registry.RemoteFile(name, f"demo/{name}") for name in served)
    entry = registry.Entry("demo", registry.Host(server.address), files, 213_000, config.to_dict(), "", "")
    monkeypatch.setitem(registry.ENTRIES, "demo", entry)
    server.files.update({f"/demo/{name}": Served(content) for name, content in served.items()})

    from paddle_nezha.checkpoint import pdparams
    from paddle_nezha.tokenizer import NeZhaTokenizer

    folder = fetch("demo")
    assert NeZhaConfig.from_pretrained(folder) == config
    ids, expected = (NeZhaTokenizer.from_pretrained(place)("今天早上")["input_ids"] for place in (folder, DEMO))
    assert ids == expected
    arrays = pdparams.read(folder / "model_state.pdparams")
    for name, array in pdparams.read(DEMO / "model_state.pdparams").items():
        np.testing.assert_array_equal(arrays[name], array)


def test_a_tokenizer_fetches_no_weights_and_a_model_then_those_alone(server, toy, home):
    from paddle_nezha.tokenizer import NeZhaTokenizer

    weights = server.files.pop("/toy.pdparams")
    NeZhaTokenizer.from_pretrained("toy")
    assert (home / "vocab.txt").is_file() and not (home / "model_state.pdparams").exists()
    server.files.clear()
    server.files["/toy.pdparams"] = weights
    fetch("toy")
    assert {path.name for path in home.iterdir()} - {".fetch.lock"} == OURS


def test_nothing_but_the_files_and_their_records_is_left(toy, home):
    assert fetch("toy") == home
    assert {path.name for path in home.iterdir()} - {".fetch.lock"} == OURS
    assert (home / "model_state.pdparams.sha256").read_text() == f"{GOOD}  model_state.pdparams\n"
    if shutil.which("sha256sum"):
        command = ["sha256sum", "-c", "model_state.pdparams.sha256", "vocab.txt.sha256"]
        assert subprocess.run(command, cwd=home, capture_output=True).returncode == 0


def test_the_config_is_the_registrys_and_an_edited_one_is_left_alone(toy, home):
    assert NeZhaConfig.from_pretrained(fetch("toy")) == NeZhaConfig(**toys.CONFIG)
    NeZhaConfig(**{**toys.CONFIG, "num_labels": 7}).save_pretrained(home)
    assert NeZhaConfig.from_pretrained(fetch("toy")).num_labels == 7


# ---- without a connection


def test_q28_what_is_there_needs_no_connection(toy, home, no_sockets):
    home.mkdir(parents=True)
    (home / "vocab.txt").write_bytes(toys.VOCABULARY)
    (home / "model_state.pdparams").write_bytes(toys.WEIGHTS)
    assert fetch("toy") == home
    assert read_pin(home / "model_state.pdparams") == GOOD  # placed by hand, recorded at first use
    assert NeZhaConfig.from_pretrained(home).hidden_size == 8


@pytest.mark.parametrize("how", ["argument", "1", "TRUE"])
def test_offline_says_which_file_to_put_where(toy, home, no_sockets, monkeypatch, how):
    if how != "argument":
        monkeypatch.setenv("PADDLE_NEZHA_OFFLINE", how)
    with pytest.raises(FetchError) as caught:
        fetch("toy", offline=True if how == "argument" else None)
    address = registry.ENTRIES["toy"].host.address
    assert str(caught.value) == (
        f"offline, and toy is not here. To place it by hand, put"
        f"\n  {home / 'vocab.txt'}  from  {address}/toy-vocab.txt"
        f"  ({len(toys.VOCABULARY)} bytes, sha256 {hashlib.sha256(toys.VOCABULARY).hexdigest()})"
        f"\n  {home / 'model_state.pdparams'}  from  {address}/toy.pdparams"
    )
    assert not home.exists()


@pytest.mark.parametrize("value, argument", [("0", None), ("", None), ("no", None), ("1", False)])
def test_online(toy, monkeypatch, value, argument):
    monkeypatch.setenv("PADDLE_NEZHA_OFFLINE", value)
    assert fetch("toy", offline=argument).is_dir()


# ---- where


def test_q31_argument_over_variable_over_the_platforms_folder(toy, monkeypatch, tmp_path):
    assert fetch("toy", cache_dir=tmp_path / "given") == tmp_path / "given" / "toy"
    monkeypatch.setenv("PADDLE_NEZHA_HOME", str(tmp_path / "set after import"))
    assert fetch("toy") == tmp_path / "set after import" / "toy"
    monkeypatch.delenv("PADDLE_NEZHA_HOME")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_home() == tmp_path / "xdg" / "paddle_nezha"


def test_q32_chinese_characters_and_spaces(toy, tmp_path):
    folder = fetch("toy", cache_dir=tmp_path / "缓存 目录")
    assert sha256_of(folder / "model_state.pdparams") == GOOD


def test_to_fills_another_folder_and_the_cache_is_a_source(server, toy, home, tmp_path):
    there = tmp_path / "there"
    assert fetch("toy", to=there) == there
    assert {path.name for path in there.iterdir()} - {".fetch.lock"} == OURS
    assert not (home / "model_state.pdparams").exists()
    asked = len(server.asked)
    fetch("toy")
    assert {one.path for one in server.asked[asked:]} == {one.path for one in server.asked[:asked]}
    asked = len(server.asked)
    fetch("toy", to=tmp_path / "third")
    assert len(server.asked) == asked and sha256_of(tmp_path / "third" / "model_state.pdparams") == GOOD


def test_a_folder_that_cannot_be_made(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match="cannot be written .*: choose another place with PADDLE_NEZHA_HOME"):
        fetch("toy", cache_dir=tmp_path / "file")


# ---- pins


def test_what_was_first_used_is_held_ever_after(server, toy, home, tmp_path):
    fetch("toy")
    toy.content, toy.etag = OTHER, '"v2"'
    for folder in (home, tmp_path / "elsewhere"):
        (home / "model_state.pdparams").unlink(missing_ok=True)
        with pytest.raises(FetchError, match=f"expected sha256 {GOOD} .as first used; delete .*sha256 to accept"):
            fetch("toy", to=folder)
        assert not (folder / "model_state.pdparams").exists()
    (home / "model_state.pdparams.sha256").unlink()
    assert sha256_of(fetch("toy") / "model_state.pdparams") == hashlib.sha256(OTHER).hexdigest()


def test_what_was_first_used_elsewhere_is_held_in_the_cache(toy, home, tmp_path):
    fetch("toy", to=tmp_path / "there")
    toy.content, toy.etag = OTHER, '"v2"'
    with pytest.raises(FetchError, match="as first used"):
        fetch("toy")


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_file_that_changed_since_is_refused(toy, home, tmp_path, keep_times):
    path = fetch("toy") / "model_state.pdparams"
    stat = path.stat()
    path.write_bytes(OTHER)
    if keep_times:  # as `cp -p` does
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"has changed since it was first used: expected sha256 {GOOD}"):
            fetch("toy")
    path.with_name(path.name + ".sha256").unlink()
    assert fetch("toy") == home and read_pin(path) == hashlib.sha256(OTHER).hexdigest()


def test_a_published_checksum_wins_over_the_record(server, monkeypatch, home):
    publish(server, monkeypatch, sha256=GOOD)
    path = fetch("toy") / "model_state.pdparams"
    path.write_bytes(OTHER)
    pin(path)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"expected sha256 {GOOD}, found .*Delete it to fetch it again"):
            fetch("toy")
    path.unlink()
    assert sha256_of(fetch("toy") / path.name) == read_pin(path) == GOOD


def test_a_file_placed_by_hand_that_cannot_be_it(toy, home):
    home.mkdir(parents=True)
    (home / "vocab.txt").write_bytes(toys.VOCABULARY)
    (home / "model_state.pdparams").write_bytes(toys.WEIGHTS[:-10])
    with pytest.raises(CheckpointError, match=r"lack the end that such a file has. Delete it or replace it"):
        fetch("toy")
    (home / "model_state.pdparams").write_bytes(b"<html>")
    with pytest.raises(CheckpointError, match="it is a web page"):
        fetch("toy")
    (home / "vocab.txt").write_bytes(b"x" * len(toys.VOCABULARY))
    for _ in range(2):
        with pytest.raises(CheckpointError, match="vocab.txt is not the file that is wanted: expected sha256"):
            fetch("toy")


def test_the_record_reads_and_refuses(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_pin(path) is None
    assert pin(path) == read_pin(path) == check_pin(path) == sha256_of(path) == hashlib.sha256(b"abc").hexdigest()
    path.write_bytes(b"abd")
    with pytest.raises(CheckpointError, match="has changed since it was first used"):
        check_pin(path)
    (tmp_path / "file.sha256").write_text("rubbish")
    with pytest.raises(CheckpointError, match="should hold one line, 64 hexadecimal digits .* holds 'rubbish'"):
        check_pin(path)


def test_a_record_is_believed_until_the_file_changes_unless_thorough(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    digest = pin(path)
    monkeypatch.setattr("paddle_nezha.hub.pins.sha256_of", lambda path: "f" * 64)
    assert check_pin(path, thorough=False) == digest
    with pytest.raises(CheckpointError, match="has changed"):
        check_pin(path)


def test_a_look_into_the_weights_decides(server, toy, home):
    looked = []

    def check(entry, path):
        looked.append((entry.name, path.read_bytes()))
        if server.count("/toy.pdparams") == 1:
            raise CheckpointError("word is missing")

    with pytest.raises(CheckpointError, match="word is missing"):
        fetch("toy", check=check)
    assert {path.name for path in home.iterdir()} - {".fetch.lock"} == {"vocab.txt", "vocab.txt.sha256"}
    assert fetch("toy", check=check) == fetch("toy", check=check) == home
    assert looked == [("toy", toys.WEIGHTS)] * 2  # and not again once it is recorded


@pytest.mark.parametrize("how", ["by hand", "PaddleNLP"])
def test_a_file_that_did_not_come_by_us_is_looked_into_too(official, toy, home, caplog, how):
    home.mkdir(parents=True)
    (home / "vocab.txt").write_bytes(toys.VOCABULARY)
    path = put_at_paddlenlp() if how == "PaddleNLP" else home / "model_state.pdparams"
    path.write_bytes(toys.WEIGHTS)

    def refuse(entry, path):
        raise CheckpointError("word is missing")

    with pytest.raises(CheckpointError if how == "by hand" else FetchError):
        fetch("toy", check=refuse, offline=True)
    assert how == "by hand" or "word is missing" in caplog.text
    assert not (home / "model_state.pdparams.sha256").exists()


def test_torchs_older_format_has_no_end_to_look_for(tmp_path):
    weights = registry.published("sijunhe/nezha-cn-base").weights
    (tmp_path / weights.name).write_bytes(b"\x80\x02" + bytes(100))
    assert contents.incomplete(registry.published("sijunhe/nezha-cn-base"), weights, tmp_path / weights.name) is None


# ---- PaddleNLP's cache


@pytest.mark.parametrize("name", ["model_state.pdparams", "toy.pdparams"])
def test_paddlenlps_copy_is_used(official, toy, home, name):
    source = put_at_paddlenlp(name=name)
    put_at_paddlenlp(toys.VOCABULARY, "toy-vocab.txt")
    assert fetch("toy", offline=True) == home and official.asked == []
    assert read_pin(home / "model_state.pdparams") == GOOD
    (home / "model_state.pdparams").write_bytes(b"")
    assert source.read_bytes() == toys.WEIGHTS  # ours is a copy


@pytest.mark.parametrize(
    "content, why", [(toys.WEIGHTS[:-9], "lack the end"), (b"<html>", "web page"), (b"", "begins")]
)
def test_paddlenlps_copy_is_not_used_when_it_is_bad(official, toy, home, caplog, content, why):
    source = put_at_paddlenlp(content)
    assert sha256_of(fetch("toy") / "model_state.pdparams") == GOOD and official.count("/toy.pdparams") == 1
    assert f"{source} is not used in place of a download" in caplog.text and why in caplog.text


def test_paddlenlps_copy_is_held_to_what_is_known(official, toy, home, caplog, tmp_path):
    fetch("toy", to=tmp_path / "there")
    put_at_paddlenlp(OTHER)
    with pytest.raises(FetchError, match="offline, and no copy of model_state.pdparams can be used"):
        (home / "vocab.txt").write_bytes(toys.VOCABULARY)
        fetch("toy", offline=True)
    assert f"expected sha256 {GOOD} (as first used" in caplog.text
    assert not list(home.glob("*.part"))


# ---- from where


def test_a_mirror_stands_in_for_the_source(toy, monkeypatch, tmp_path):
    mirrors = [Loopback(), Loopback()]
    for mirror in mirrors:
        mirror.files.update({f"/nezha/{name}": Served(content) for name, content in _SERVED.items()})
    monkeypatch.setenv("PADDLE_NEZHA_MIRROR", mirrors[0].address + "/nezha/")
    fetch("toy")
    fetch("toy", mirror=mirrors[1].address + "/nezha", to=tmp_path / "b", cache_dir=tmp_path / "c")
    for mirror in mirrors:
        mirror.stop()
        assert [asked.path for asked in mirror.asked] == [f"/nezha/{name}" for name in _SERVED]


_SERVED = {"toy-vocab.txt": toys.VOCABULARY, "toy.pdparams": toys.WEIGHTS}


def test_the_addresses(monkeypatch):
    official, hub = registry.published("nezha-large-wwm-chinese"), registry.published("sijunhe/nezha-cn-base")
    host = "https://bj.bcebos.com/paddlenlp/models/transformers/nezha"
    assert [official.address(file) for file in official.files] == [
        f"{host}/nezha-chinese-vocab.txt",
        f"{host}/nezha-large-wwm-chinese.pdparams",
    ]
    address = "https://huggingface.co/sijunhe/nezha-cn-base/resolve/main"
    assert [hub.address(file) for file in hub.files] == [
        f"{address}/{name}" for name in ("config.json", "vocab.txt", "pytorch_model.bin")
    ]
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example.org/")
    assert hub.address(hub.weights) == "https://hub.example.org/sijunhe/nezha-cn-base/resolve/main/pytorch_model.bin"
    assert official.address(official.weights).startswith(host)
    monkeypatch.setenv("PADDLE_NEZHA_MIRROR", "https://mirror.example.org/x")
    for entry in (official, hub):
        assert entry.address(entry.weights) == f"https://mirror.example.org/x/{entry.weights.path}"
        assert entry.address(entry.weights, "https://y") == f"https://y/{entry.weights.path}"


def test_hugging_face_folders_bring_their_own_config(server, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    entry = registry.published("sijunhe/nezha-base-wwm")
    packed = io.BytesIO()
    np.savez(packed, word=np.arange(9))
    served = {
        "config.json": b'{"model_type": "nezha"}',
        "vocab.txt": b"[PAD]\n",
        "pytorch_model.bin": packed.getvalue(),
    }
    for file in entry.files:
        server.files[f"/{file.path}"] = Served(served[file.name])
    folder = fetch(entry.name)
    assert folder == cache_home() / "sijunhe" / "nezha-base-wwm"
    assert {name: (folder / name).read_bytes() for name in served} == served
    server.files[f"/{entry.weights.path}"].content = packed.getvalue()[:-30]
    for path in folder.glob("pytorch_model.bin*"):
        path.unlink()
    with pytest.raises(FetchError, match="lack the end"):
        fetch(entry.name)


def test_a_proxy_is_used_and_no_proxy_heeded(server, toy, monkeypatch, tmp_path):
    proxy = Loopback()
    proxy.files = server.files
    monkeypatch.setenv("http_proxy", proxy.address)
    fetch("toy")
    assert (len(server.asked), len(proxy.asked)) == (0, 2)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fetch("toy", cache_dir=tmp_path / "b")
    assert (len(server.asked), len(proxy.asked)) == (2, 2)
    proxy.stop()


# ---- https


@pytest.fixture(scope="module")
def authority():
    return pytest.importorskip("trustme").CA()


@pytest.fixture
def secure(authority, monkeypatch, tmp_path):
    """The toy on an https server, whose authority is known by REQUESTS_CA_BUNDLE."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    secure = Loopback(context)
    publish(secure, monkeypatch)
    yield secure
    secure.stop()


def test_https_and_a_resume_over_it(secure, home):
    secure.files["/toy.pdparams"].cuts = [1500, 100]
    assert sha256_of(fetch("toy") / "model_state.pdparams") == GOOD
    assert [asked.range for asked in secure.asked[1:]] == [None, "bytes=1500-", "bytes=1600-"]


def test_https_through_a_proxy(secure, server, monkeypatch):
    monkeypatch.setenv("https_proxy", server.address)
    fetch("toy")
    assert server.asked[0].path == secure.address.rpartition("/")[2] and secure.count("/toy.pdparams") == 1


def test_an_unknown_certificate_is_refused_at_once(secure, monkeypatch, home):
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with pytest.raises(FetchError, match="certificate is not accepted .*REQUESTS_CA_BUNDLE"):
        fetch("toy")
    assert secure.asked == [] and not (home / "vocab.txt").exists()


def test_https_never_leads_to_http_not_even_on_this_machine(secure, server):
    server.files["/x"] = Served(toys.WEIGHTS)
    secure.files["/toy.pdparams"].answers = [(302, {"Location": f"{server.address}/x"}, b"")]
    with pytest.raises(FetchError, match=f"{server.address}/x, to which {secure.address}/toy.pdparams redirects, is"):
        fetch("toy")
    assert server.asked == []


# ---- words


@pytest.mark.parametrize("progress", [None, False, True])
def test_a_bar_where_somebody_looks(toy, capsys, progress):
    fetch("toy", progress=progress)
    assert ("toy.pdparams: 100%" in capsys.readouterr().err) is bool(progress)  # pytest's stderr is no terminal


def test_names():
    assert list(registry.ENTRIES)[:4] == list(registry.NEZHA_PRETRAINED_INIT_CONFIGURATION)
    with pytest.raises(ValueError, match="Did you mean 'nezha-base-chinese'. Published: nezha-base-chinese, "):
        fetch("nezha-base-chinesse")
    with pytest.raises(ValueError, match="12 layers of width 768 are the base model.*Use nezha-base-chinese"):
        fetch("nezha-cn-12L768H")
    with pytest.raises(ValueError, match="28,996 words and max_relative_position 127.*Convert Huawei's own release"):
        fetch("nezha-en-12L768H")
    assert registry.is_published("nezha-en-12L768H") and not registry.is_published("weights/nezha-seeded-demo")


@pytest.mark.parametrize("name", registry.NEZHA_PRETRAINED_INIT_CONFIGURATION)
def test_parameters_are_those_of_the_config_with_all_pretraining_heads(name):
    entry = registry.published(name)
    config = NeZhaConfig(**entry.config)
    words, width, inner = config.vocab_size, config.hidden_size, config.intermediate_size
    norm, square = 2 * width, width * width + width
    layer = 4 * square + 2 * norm + (width * inner + inner) + (inner * width + width)
    embeddings = words * width + config.type_vocab_size * width + norm
    heads = square + (square + norm + words) + (width * 2 + 2)  # pooler, masked LM, next sentence
    assert embeddings + config.num_hidden_layers * layer + heads == entry.parameters


def test_no_checksum_is_invented():
    known = {entry.name: entry.weights.sha256 for entry in registry.ENTRIES.values() if entry.weights.sha256}
    assert known == {
        "sijunhe/nezha-cn-large": "d162f8667bf77baaa8d5850ea81c7c432944d7bff5fd9208451c3d5e47771c47",
        "sijunhe/nezha-large-wwm": "b1172679412134f2558dfd9d510093f0fa83720b34b4c95e33b4f076078ada00",
    }
    vocabularies = {file for name in list(registry.ENTRIES)[:4] for file in registry.ENTRIES[name].files[:1]}
    assert [(file.sha256[:8], file.size) for file in vocabularies] == [("45bbac6b", 109_540)]


def test_q74_the_list(toy, home, no_sockets, monkeypatch):
    by_name = {status.name: status for status in list_entries()}
    base = by_name["nezha-base-chinese"]
    assert base.address == "https://bj.bcebos.com/paddlenlp/models/transformers/nezha/nezha-base-chinese.pdparams"
    assert (base.size, base.sha256, base.parameters) == (None, None, 102_489_226)
    assert "Apache-2.0" in base.licence and "Huawei" in base.provenance
    assert (base.folder, base.verified) == (None, None)
    assert by_name["sijunhe/nezha-cn-large"].licence == "AFL-3.0"


def test_the_list_says_what_is_here_and_how_it_is_known(server, monkeypatch, toy, home):
    def listed():
        return next(status for status in list_entries() if status.name == "toy")

    fetch("toy")
    size = len(toys.WEIGHTS) + len(toys.VOCABULARY)
    assert (listed().folder, listed().size, listed().verified) == (home, size, "pinned")
    monkeypatch.setitem(registry.ENTRIES, "toy", toys.entry(server.address, sha256=GOOD))
    assert listed().verified == "sha256"
    monkeypatch.setitem(registry.ENTRIES, "toy", toys.entry(server.address, sha256="0" * 64))
    assert listed().verified is None
    monkeypatch.setitem(registry.ENTRIES, "toy", toys.entry(server.address))
    (home / "model_state.pdparams").write_bytes(OTHER)
    assert (listed().folder, listed().verified) == (home, None)


def test_no_framework_is_imported():
    code = "import sys, paddle_nezha.hub; print(sorted({'paddle', 'torch', 'tokenizers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_mirror_that_is_no_address(toy, tmp_path):
    with pytest.raises(FetchError, match=r"is no address \(.*write https://HOST/PATH"):
        fetch("toy", mirror="https://[bad", cache_dir=tmp_path)
