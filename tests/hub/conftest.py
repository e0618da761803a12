"""A server on this machine, a checkpoint on it, and an environment that knows no other."""

import os
from pathlib import Path

import pytest
import toys
from loopback import Loopback, Served

from paddle_nezha.hub import download, registry


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch, tmp_path):
    """No cache, proxy or mirror of whoever runs the tests, and no patience."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("PADDLE_NEZHA_", "HF_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))  # for the processes that tests start
    monkeypatch.setenv("PADDLE_NEZHA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "paddlenlp"))
    monkeypatch.setattr(download, "PATIENCE", toys.QUICK)


@pytest.fixture
def server():
    server = Loopback()
    yield server
    server.stop()


@pytest.fixture
def toy(server, monkeypatch):
    """The toy is published: gives how its weights are served."""
    return publish(server, monkeypatch)


def publish(server, monkeypatch, **weights):
    monkeypatch.setitem(registry.ENTRIES, "toy", toys.entry(server.address, **weights))
    server.files["/toy-vocab.txt"] = Served(toys.VOCABULARY)
    server.files["/toy.pdparams"] = Served(toys.WEIGHTS)
    return server.files["/toy.pdparams"]


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home" / "toy"
