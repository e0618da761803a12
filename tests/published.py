"""The shelf's checkpoint, published on a server of this machine, in an environment that knows no other."""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from paddle_nezha.hub import registry
from paddle_nezha.hub.registry import Entry, Host, RemoteFile
from weights.demo import FOLDER

NAME, PARAMETERS = "demo", 209_804


def loopback() -> ModuleType:
    """tests/hub/loopback.py, which is on the path of its own folder's tests alone."""
    if "loopback" not in sys.modules:
        file = Path(__file__).resolve().parent / "hub" / "loopback.py"
        spec = importlib.util.spec_from_file_location("loopback", file)
        module = sys.modules["loopback"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["loopback"]


def isolate(monkeypatch, home):
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("PADDLE_NEZHA_", "HF_")):
            monkeypatch.delenv(name)
    # Set, so that what the code under test sets is put back too.
    monkeypatch.setenv("PADDLE_NEZHA_OFFLINE", "0")
    monkeypatch.setenv("PADDLE_NEZHA_HOME", str(home))
    monkeypatch.setenv("PPNLP_HOME", str(home / "paddlenlp"))


def publish(monkeypatch, server, weights=None):
    """Publishes it as "demo", alone; `weights` are other bytes in place of its own."""
    served = loopback().Served
    vocabulary = (FOLDER / "vocab.txt").read_bytes()
    entry = Entry(
        name=NAME,
        host=Host(server.address),
        files=(
            RemoteFile("config.json", "config.json"),
            RemoteFile("vocab.txt", "vocab.txt", hashlib.sha256(vocabulary).hexdigest(), len(vocabulary)),
            RemoteFile("model_state.pdparams", "model_state.pdparams"),
        ),
        parameters=PARAMETERS,
        config=None,
        licence="Apache-2.0",
        provenance="a test",
    )
    monkeypatch.setattr(registry, "ENTRIES", {NAME: entry})
    monkeypatch.setattr("paddle_nezha.hub.fetching.ENTRIES", {NAME: entry})
    server.files.update(
        {
            "/config.json": served((FOLDER / "config.json").read_bytes()),
            "/vocab.txt": served(vocabulary),
            "/model_state.pdparams": served(weights or (FOLDER / "model_state.pdparams").read_bytes()),
        }
    )
    return entry
