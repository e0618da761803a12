"""Every fault of a download ends in the right file or in a clear error, and never in a bad file at the final path."""

import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import toys
from conftest import publish
from loopback import Served, until

from paddle_nezha.hub import FetchError, download, fetch, partial, read_pin
from paddle_nezha.hub.download import Download

GOOD = hashlib.sha256(toys.WEIGHTS).hexdigest()
CHILD = str(Path(toys.__file__))


@pytest.fixture
def bring(server, tmp_path):
    """Brings one file and gives its bytes: ``bring(served, sha256=...)``."""

    def bring(served, **expected):
        server.files["/file"] = served
        part = tmp_path / "file.part"
        Download(f"{server.address}/file", part, **expected).run()
        content = part.read_bytes()
        part.unlink()
        return content

    return bring


def nothing_at(folder: Path) -> bool:
    """Neither the file nor a record of it stands at the final path."""
    return not {"model_state.pdparams", "model_state.pdparams.sha256"} & {path.name for path in folder.glob("*")}


# ---- cut


def test_cut_at_any_byte(server, tmp_path):
    content = random.Random(20).randbytes(120)
    for cut in range(len(content)):
        path = f"/{cut}"
        server.files[path] = Served(content, cuts=[cut])
        part = tmp_path / str(cut)
        digest = Download(server.address + path, part).run()
        assert (part.read_bytes(), digest) == (content, hashlib.sha256(content).hexdigest())
        last = server.asked[-1]
        assert (last.path, last.range) == (path, f"bytes={cut}-" if cut else None)


def test_many_cuts_in_a_row_are_no_error_while_bytes_are_gained(server, bring, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", download.Patience(attempts=2, progress=100, wait=0.001))
    content = bytes(1000)
    assert bring(Served(content, cuts=[100] * 9)) == content
    assert [asked.range for asked in server.asked] == [None] + [f"bytes={100 * n}-" for n in range(1, 10)]


def test_cuts_without_gain_are_an_error_that_keeps_what_came(server, toy, home):
    toy.cuts = [1000, 100, 0, 0]
    with pytest.raises(FetchError, match=r"did not come in 3 attempts: .*") as caught:
        fetch("toy")
    assert "1,100 bytes are kept in" in str(caught.value) and "goes on from there" in str(caught.value)
    assert nothing_at(home)
    toy.cuts = []
    assert (fetch("toy") / "model_state.pdparams").read_bytes() == toys.WEIGHTS
    assert server.asked[-1].range == "bytes=1100-"


def test_a_server_without_ranges_starts_again(server, bring):
    assert bring(Served(toys.WEIGHTS, ranges=False, cuts=[1500])) == toys.WEIGHTS
    assert [asked.range for asked in server.asked] == [None, "bytes=1500-"]


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_mark_of_the_version_nothing_is_resumed(server, bring, etag):
    assert bring(Served(toys.WEIGHTS, etag=etag, cuts=[1500])) == toys.WEIGHTS
    assert [asked.range for asked in server.asked] == [None, None]


def test_the_date_marks_a_version_too(server, bring):
    date = "Mon, 23 Nov 2026 08:00:00 GMT"
    assert bring(Served(toys.WEIGHTS, etag=None, last_modified=date, cuts=[1500])) == toys.WEIGHTS
    assert server.asked[-1].headers["If-Range"] == date and server.asked[-1].range == "bytes=1500-"


@pytest.mark.parametrize("size", [0, 5, 4000])
def test_a_file_that_changes_between_two_resumes_starts_again(server, bring, size):
    new = random.Random(size).randbytes(2000 + size)

    def change(served):
        served.content, served.etag = new, '"v2"'

    assert bring(Served(bytes(3000), cuts=[1500], then=change)) == new
    assert server.asked[-1].headers["If-Range"] == '"v1"'


def test_a_change_under_the_same_mark_is_caught_by_the_checksum(server, bring):
    def change(served):
        served.content = toys.WEIGHTS

    served = Served(b"\x80" + bytes(len(toys.WEIGHTS) - 1), cuts=[1500], then=change)
    assert bring(served, sha256=GOOD) == toys.WEIGHTS
    assert [asked.range for asked in server.asked] == [None, "bytes=1500-", None]


def test_a_change_under_the_same_mark_is_seen_by_its_size(server, bring):
    def change(served):
        served.content = toys.WEIGHTS

    assert bring(Served(bytes(3000), cuts=[1500], then=change)) == toys.WEIGHTS
    assert [asked.range for asked in server.asked] == [None, "bytes=1500-", None]


def test_a_server_that_sends_less_than_it_was_asked_for_is_asked_for_the_rest(server, bring):
    some = {"ETag": '"v1"', "Content-Range": f"bytes 1500-1999/{len(toys.WEIGHTS)}"}

    def answer(served):
        if len(server.asked) == 1:
            served.answers = [(206, some, toys.WEIGHTS[1500:2000])]

    assert bring(Served(toys.WEIGHTS, cuts=[1500], then=answer)) == toys.WEIGHTS
    assert [asked.range for asked in server.asked] == [None, "bytes=1500-", "bytes=2000-"]


def test_a_part_that_is_longer_than_the_file_now_is_starts_again(server, bring):
    def change(served):
        served.content = bytes(100)  # the same mark: what is left of the part to ask for lies behind the end

    assert bring(Served(bytes(3000), cuts=[1500], then=change)) == bytes(100)
    assert [asked.range for asked in server.asked] == [None, "bytes=1500-", None]


def test_the_part_of_another_address_is_not_gone_on_from(server, tmp_path):
    part = tmp_path / "file.part"
    server.files.update({"/one": Served(bytes(len(toys.WEIGHTS)), cuts=[1500, 0, 0]), "/two": Served(toys.WEIGHTS)})
    with pytest.raises(FetchError):
        Download(f"{server.address}/one", part).run()
    Download(f"{server.address}/two", part).run()
    assert part.read_bytes() == toys.WEIGHTS and server.asked[-1].range is None


@pytest.mark.parametrize("note", ["", "{", "[]", '{"url": 1}', None])
def test_a_part_whose_note_is_lost_starts_again(server, tmp_path, note):
    part = tmp_path / "file.part"
    part.write_bytes(b"rubbish")
    if note is not None:
        (tmp_path / "file.part.json").write_text(note)
    server.files["/file"] = Served(toys.WEIGHTS)
    Download(f"{server.address}/file", part).run()
    assert part.read_bytes() == toys.WEIGHTS and server.asked[-1].range is None


# ---- wrong from the start


def test_wrong_length(server, toy, home):
    toy.length = len(toys.WEIGHTS) + 10
    with pytest.raises(FetchError, match="3 attempts") as caught:
        fetch("toy")
    assert f"{len(toys.WEIGHTS):,}" in str(caught.value) or "more expected" in str(caught.value)
    assert nothing_at(home)


def test_a_length_too_small_is_seen_by_the_end_that_is_missing(toy, home):
    toy.length = 4050
    assert toy.length < len(toys.WEIGHTS)
    with pytest.raises(FetchError, match="4,050 bytes lack the end"):
        fetch("toy")
    assert nothing_at(home)


def test_half_a_file_without_a_length_is_seen_by_its_size(toy, home):
    toy.content, toy.chunked = toys.WEIGHTS[:2000] + b".", True
    with pytest.raises(FetchError, match=r"expected at least 3,920 bytes \(1,000 parameters in float32\), found 2,001"):
        fetch("toy")
    assert nothing_at(home)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_known_size_is_held(server, toy, home, chunked):
    server.files["/toy-vocab.txt"] = Served(b"[PAD]\n" * 20, chunked=chunked)
    offered = f"is another file: expected {len(toys.VOCABULARY)} bytes, the server offers 120"
    with pytest.raises(FetchError, match="came sha256 .*, 120 bytes" if chunked else offered):
        fetch("toy")
    assert not (home / "vocab.txt").exists()


def test_every_file_that_is_not_there_is_listed_for_placing_by_hand(server, toy, home):
    """Whoever has no network learns of all of them at once, not of the first."""
    server.files.clear()
    with pytest.raises(FetchError) as caught:
        fetch("toy")
    _, _, remedy = str(caught.value).partition("To place it by hand, put")
    with pytest.raises(FetchError) as offline:
        fetch("toy", offline=True)
    assert remedy == str(offline.value).partition("To place it by hand, put")[2]
    assert str(home / "vocab.txt") in remedy and str(home / "model_state.pdparams") in remedy


def test_404_with_a_body(server, toy, home):
    del server.files["/toy.pdparams"]
    with pytest.raises(FetchError, match=r"toy.pdparams answered 404 Not Found in place of the file") as caught:
        fetch("toy")
    assert f"To place it by hand, put\n  {home / 'model_state.pdparams'}  from  {server.address}" in str(caught.value)
    assert server.count("/toy.pdparams") == 1 and nothing_at(home)


@pytest.mark.parametrize(
    "page", [b"<!DOCTYPE html><html>Sign in</html>", b"\n\n <html>", b"\xef\xbb\xbf<html>", b"<html>" + bytes(9000)]
)
def test_200_with_html(server, toy, home, page):
    toy.content = page
    with pytest.raises(FetchError, match="did not give the file, but a web page"):
        fetch("toy")
    assert server.count("/toy.pdparams") == 1 and nothing_at(home)
    assert not list(home.glob("model_state*"))


@pytest.mark.parametrize(
    "content, what", [(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"), (b"Access denied", "Access denied")]
)
def test_other_text_in_place_of_the_file(toy, home, content, what):
    toy.content = content
    with pytest.raises(FetchError, match=what):
        fetch("toy")
    assert nothing_at(home)


@pytest.mark.parametrize("chunked", [False, True])
def test_an_empty_body(server, toy, home, chunked):
    toy.content, toy.chunked = b"", chunked
    with pytest.raises(FetchError, match="sent an empty body"):
        fetch("toy")
    assert server.count("/toy.pdparams") == 3 and nothing_at(home)


def test_wrong_hash(server, monkeypatch, home):
    publish(server, monkeypatch, sha256="0" * 64)
    with pytest.raises(FetchError, match=f"expected sha256 {'0' * 64} .as published.; came sha256 {GOOD}"):
        fetch("toy")
    assert server.count("/toy.pdparams") == 1 and not list(home.glob("model_state*"))


def test_the_hub_states_a_checksum_on_its_redirect(server, bring):
    def redirect(sha256):
        return Served(b"", answers=[(302, {"Location": "/far", "X-Linked-ETag": f'"{sha256}"'}, b"")])

    server.files["/far"] = Served(toys.WEIGHTS)
    assert bring(redirect(GOOD)) == toys.WEIGHTS
    with pytest.raises(FetchError, match=f"expected sha256 {'1' * 64} .as the hub states.; came sha256 {GOOD}"):
        bring(redirect("1" * 64))
    with pytest.raises(FetchError, match=f"is another file now: .* the hub states {'1' * 64}"):
        bring(redirect("1" * 64), sha256=GOOD)


def test_a_body_that_is_compressed_though_nobody_asked_for_it(bring):
    packed = zlib.compressobj(wbits=31)
    content = packed.compress(toys.WEIGHTS) + packed.flush()
    assert bring(Served(content, headers={"Content-Encoding": "gzip"}), sha256=GOOD) == toys.WEIGHTS


# ---- redirects


def test_a_redirect_loop(server, toy):
    loop = (302, {"Location": "/toy.pdparams"}, b"")
    toy.answers = [loop] * 50
    with pytest.raises(FetchError, match="leads in circles: more than 10 redirects"):
        fetch("toy")
    assert server.count("/toy.pdparams") == 11


@pytest.mark.parametrize(
    "target", ["http://example.org/file", "ftp://127.0.0.1/file", "file:///etc/passwd", "http://["]
)
def test_a_redirect_to_anything_but_https_is_refused(server, toy, target):
    toy.answers = [(302, {"Location": target}, b"")]
    with pytest.raises(FetchError, match="only https is used|no usable address"):
        fetch("toy")
    assert server.count("/toy.pdparams") == 1


@pytest.mark.parametrize("address", ["http://example.org", "http://127.0.0.1.example.org", "ftp://example.org"])
def test_plain_http_is_refused_before_any_connection(toy, monkeypatch, address):
    monkeypatch.setattr("socket.socket.connect", None)
    with pytest.raises(FetchError, match=f"{address}/toy-vocab.txt is refused: only https"):
        fetch("toy", mirror=address)


# ---- slow, busy, gone


def test_silence_is_waited_for_only_so_long_and_what_came_is_kept(server, bring):
    assert bring(Served(toys.WEIGHTS, piece=1500, pause=30.0)) == toys.WEIGHTS
    assert [asked.range for asked in server.asked] == [None, "bytes=1500-", "bytes=3000-"]


def test_a_slow_drip_is_given_up_though_it_is_never_silent(server, toy, home):
    toy.piece, toy.pause = 1, 0.01
    with pytest.raises(FetchError, match="3 attempts: slower than 4,096 bytes a second"):
        fetch("toy")
    ranges = [asked.range for asked in server.asked if asked.path == "/toy.pdparams"]
    assert len(ranges) == 3 and ranges[0] is None and all(ranges[1:]) and nothing_at(home)


def test_a_busy_server_is_asked_again_when_it_says(server, toy, monkeypatch):
    pauses = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    toy.answers = [(503, {"Retry-After": "3"}, b"busy"), (429, {}, b"")]
    assert fetch("toy").is_dir()
    assert pauses[0] == 3.0 and 0 < pauses[1] <= toys.QUICK.longest_wait


def test_retry_after_may_be_a_date(toy, monkeypatch):
    pauses = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    toy.answers = [(503, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"")]
    assert fetch("toy").is_dir() and pauses == [0.0]


def test_a_pause_beyond_reason_is_not_waited_for(server, toy):
    toy.answers = [(503, {"Retry-After": "3600"}, b"")]
    with pytest.raises(FetchError, match="asks to come back in 3600 s, longer than the 5 s waited here"):
        fetch("toy")
    assert server.count("/toy.pdparams") == 1


def test_pauses_double_up_to_a_limit_and_differ():
    patience = download.Patience(wait=1.0, longest_wait=8.0)
    pauses = [[patience.pause(failures) for _ in range(50)] for failures in (1, 2, 3, 4, 5, 30)]
    for longest, found in zip((1, 2, 4, 8, 8, 8), pauses):
        assert longest / 2 <= min(found) < max(found) <= longest


def test_nobody_there(server, toy):
    server.stop()
    with pytest.raises(FetchError, match="did not come in 3 attempts: .*refused.* Nothing was kept"):
        fetch("toy")


# ---- the disk


def test_room_is_looked_for_first(server, toy, home, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(FetchError, match=f"too full: {len(toys.WEIGHTS):,} bytes are needed, 1,000 are free"):
        fetch("toy")
    assert nothing_at(home) and (home / "model_state.pdparams.part").exists() is False


def test_a_disk_that_fills_keeps_what_came(server, toy, home, monkeypatch):
    class Full(partial.io.FileIO):
        def write(self, piece):
            if str(self.name).endswith("pdparams.part"):
                if self.tell() >= 1500:
                    raise OSError(errno.ENOSPC, "No space left on device")
                piece = piece[: 1500 - self.tell()]
            return super().write(piece)

    monkeypatch.setattr(partial, "open", lambda path, mode, buffering=-1: Full(path, mode), raising=False)
    with pytest.raises(FetchError, match="the disk is full: .*model_state.pdparams.part could not grow"):
        fetch("toy")
    assert nothing_at(home)
    assert (home / "model_state.pdparams.part").read_bytes() == toys.WEIGHTS[:1500]


def test_a_disk_that_is_full_indeed(server, toy, tmp_path):
    toy.content, toy.chunked = toys.WEIGHTS[:-1] + bytes(1 << 20) + b".", True  # no length to look ahead by
    done = _mounted("mount -t tmpfs -o size=256k none", tmp_path / "disk", server)
    assert done.returncode == 1 and "the disk is full" in done.stderr, done.stderr


# ---- killed, and many


def test_killed_while_it_downloads(server, toy, home):
    toy.piece, toy.pause = 1000, 0.2
    child = subprocess.Popen([sys.executable, CHILD, server.address, str(home.parent)], stdout=subprocess.PIPE)
    part = home / "model_state.pdparams.part"
    try:
        until(lambda: part.exists() and part.stat().st_size >= 2000)
    finally:
        child.kill()
        child.communicate()
    came = part.stat().st_size
    assert nothing_at(home) and 2000 <= came < len(toys.WEIGHTS)
    toy.pause = 0.0
    assert (fetch("toy") / "model_state.pdparams").read_bytes() == toys.WEIGHTS
    assert server.asked[-1].range == f"bytes={came}-"


@pytest.mark.parametrize("step, stands", [("_sync", False), ("replace", False), ("pin", True)])
def test_killed_at_each_last_step(server, toy, home, step, stands):
    # The vocabulary is there already, so the step is the weights'.
    home.mkdir(parents=True)
    (home / "vocab.txt").write_bytes(toys.VOCABULARY)
    (home / "vocab.txt.sha256").write_text(f"{hashlib.sha256(toys.VOCABULARY).hexdigest()}  vocab.txt\n")
    (home / "config.json").write_text("{}")
    done = subprocess.run([sys.executable, CHILD, server.address, str(home.parent), step], capture_output=True)
    assert done.returncode == -9, done.stderr
    path = home / "model_state.pdparams"
    assert path.exists() is stands and (not stands or path.read_bytes() == toys.WEIGHTS)
    asked = server.count("/toy.pdparams")
    assert (fetch("toy") / path.name).read_bytes() == toys.WEIGHTS
    assert server.count("/toy.pdparams") == asked and read_pin(path) == GOOD


def test_eight_processes_fetch_once(server, toy, home):
    toy.piece, toy.pause = 1000, 0.1
    command = [sys.executable, CHILD, server.address, str(home.parent)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert [child.communicate()[0].strip() for child in children] == [str(home)] * 8
    assert (server.count("/toy.pdparams"), server.count("/toy-vocab.txt")) == (1, 1)
    assert (home / "model_state.pdparams").read_bytes() == toys.WEIGHTS


# ---- read-only


def test_a_read_only_cache_is_used_as_it_is(server, toy, home):
    fetch("toy")
    (home / "model_state.pdparams.sha256").unlink()
    server.files.clear()
    done = _mounted("mount --bind {0} {0} && mount -o remount,ro,bind", home.parent, server)
    assert (done.returncode, done.stdout.strip()) == (0, str(home)), done.stderr
    (home / "vocab.txt").unlink()
    done = _mounted("mount --bind {0} {0} && mount -o remount,ro,bind", home.parent, server)
    assert done.returncode == 1 and f"{home} cannot be written" in done.stderr and "PADDLE_NEZHA_HOME" in done.stderr


def _mounted(mount: str, folder: Path, server) -> "subprocess.CompletedProcess[str]":
    """The toy, fetched into `folder` by a process of its own that sees it mounted so."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["unshare", "-rm", "sh", "-c", f'{mount.format(folder)} {folder} && exec "$0" "$@"', sys.executable]
    if shutil.which("unshare") is None or subprocess.run([*command, "-c", ""], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    arguments = [CHILD, server.address, str(folder)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=dict(os.environ))
