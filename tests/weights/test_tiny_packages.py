"""Packages come whole or not at all, and are opened as archives."""

import hashlib
import http.server
import io
import lzma
import os
import tarfile
import threading
import zipfile

import pytest

from weights.tiny import packages
from weights.tiny.packages import Package, PackageError

FILES = {"usr/share/a.txt": "甲".encode(), "usr/share/empty": b"", "usr/share/odd": b"123"}


def tar(files, mode="w:"):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("usr/share/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return held.getvalue()


def deb(files, version=b"2.0\n"):
    """A Debian package; its second member has an odd size, so that a padding byte follows."""
    parts = {"debian-binary": version, "control.tar.xz": b"odd", "data.tar.xz": lzma.compress(tar(files))}
    held = b"!<arch>\n"
    for name, content in parts.items():
        held += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        held += content + b"\n" * (len(content) % 2)
    return held


def pinned(file, content, name="thing", registry="pypi"):
    return Package(name, "1.0", file, hashlib.sha256(content).hexdigest(), "MIT", registry)


def test_members_of_the_three_kinds_are_the_same_files(tmp_path):
    (tmp_path / "a_1.0_all.deb").write_bytes(deb(FILES))
    (tmp_path / "a-1.0.tar.gz").write_bytes(tar(FILES, "w:gz"))
    with zipfile.ZipFile(tmp_path / "a-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in FILES.items():
            wheel.writestr(name, content)
    for path in tmp_path.iterdir():
        assert dict(packages.members(path)) == FILES


@pytest.mark.parametrize(
    "content, said",
    [
        (b"PK\3\4", "an ar archive"),
        (b"!<arch>\n" + b"x" * 60, "header of an ar member"),
        (deb(FILES)[:100], "header of an ar member"),
        (deb(FILES)[:72], "data.tar.xz"),
    ],
)
def test_what_is_no_debian_package_is_refused(tmp_path, content, said):
    (tmp_path / "a.deb").write_bytes(content)
    with pytest.raises(PackageError, match=said):
        list(packages.members(tmp_path / "a.deb"))


def test_a_package_is_there_with_its_bytes_or_refused(tmp_path):
    package = pinned("a.whl", b"right")
    with pytest.raises(PackageError, match="found none"):
        packages.verified(package, tmp_path)
    (tmp_path / "a.whl").write_bytes(b"wrong")
    with pytest.raises(PackageError, match=f"expected sha256 {package.sha256}"):
        packages.verified(package, tmp_path)
    (tmp_path / "a.whl").write_bytes(b"right")
    assert packages.verified(package, tmp_path) == tmp_path / "a.whl"


@pytest.fixture
def index(tmp_path):
    """A simple index of two files of one package, served on this machine."""
    served = tmp_path / "served"
    (served / "simple" / "thing").mkdir(parents=True)
    (served / "files").mkdir()
    (served / "files" / "x9").write_bytes(b"right")
    (served / "simple" / "thing" / "index.html").write_text(
        "<html><a href='../../files/x8#sha256=0'>thing-0.9.tar.gz</a>"
        "<a href='../../files/x9#sha256=1'>thing-1.0.tar.gz</a></html>"
    )

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=served)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def test_a_source_archive_is_fetched_from_the_index(tmp_path, index, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", (pinned("thing-1.0.tar.gz", b"right"),))
    packages.fetch(tmp_path / "got", index)
    assert (tmp_path / "got" / "thing-1.0.tar.gz").read_bytes() == b"right"
    packages.fetch(tmp_path / "got", "http://127.0.0.1:9/never-asked")  # what is there is not fetched again


def test_what_the_index_lacks_is_said(tmp_path, index, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", (pinned("thing-2.0.tar.gz", b"right"),))
    with pytest.raises(PackageError, match="offers no thing-2.0.tar.gz"):
        packages.fetch(tmp_path, index)
    monkeypatch.setattr(packages, "PACKAGES", (pinned("thing-0.9.tar.gz", b"right"),))
    with pytest.raises(PackageError, match="could not be had .* 404"):
        packages.fetch(tmp_path, index)


def test_other_bytes_than_the_pinned_ones_are_refused(tmp_path, index, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", (pinned("thing-1.0.tar.gz", b"another"),))
    with pytest.raises(PackageError, match="was refused"):
        packages.fetch(tmp_path, index)


def program(folder, text):
    folder.mkdir()
    (folder / "apt-get").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "apt-get").chmod(0o755)
    return str(folder)


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for apt-get")
def test_debian_packages_come_by_apt_get(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", (pinned("b_1.0_all.deb", b"b=1.0 download", "b", "debian"),))
    # apt-get writes the epoch into the name: the file is found whatever it is called
    monkeypatch.setenv("PATH", program(tmp_path / "works", 'printf "%s %s" "$2" "$1" > "b_4%3a1.0_all.deb"'))
    packages.fetch(tmp_path / "got")
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["b_1.0_all.deb"]
    monkeypatch.setenv("PATH", program(tmp_path / "fails", "echo 'no such version' >&2; exit 100"))
    with pytest.raises(PackageError, match="no such version. Fetch b_1.0_all.deb from Debian 12"):
        packages.fetch(tmp_path / "fresh")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackageError, match="there is none here"):
        packages.fetch(tmp_path / "fresh")


def test_the_pinned_packages_are_those_of_the_recipe():
    assert len({package.file for package in packages.PACKAGES}) == len(packages.PACKAGES) == 7
    assert all(len(package.sha256) == 64 and package.licence for package in packages.PACKAGES)
