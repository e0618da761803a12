"""Labelled files, written as they are in the wild."""

import pytest


@pytest.fixture
def write(tmp_path):
    """A factory: ``write("dev.tsv", "0\\t好\\n")`` or bytes, giving the path; "\\n" stays what it is."""

    def make(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make
