"""The picture of the house: which part may import which, and what works where a framework is missing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What a part of paddle_nezha may import of paddle_nezha; "checkpoint" and "tokenizer" are packages.
ALLOWED = {
    "_children": set(),
    "_files": set(),
    "_paddle": set(),
    "config": {"_files"},
    "relative": set(),
    "checkpoint": {"_files", "config"},
    "hub": {"_files", "config", "checkpoint"},
    "tokenizer": {"_files", "_paddle", "config", "hub"},
    "_streams": set(),
    "outputs": set(),
    "layers": {"_paddle", "config", "forms", "operator"},
    "forms": {"_paddle", "operator"},
    "inputs": {"_paddle"},
    "pretrained": {"_files", "_paddle", "config", "checkpoint", "hub"},
    "operator": {"_files", "_paddle", "hub", "relative"},
    "native": {"_paddle", "config", "relative"},
    "padding": {"_paddle", "inputs"},
    "attention": {"_paddle", "config", "forms", "layers", "native", "operator", "padding"},
    "model": {"_paddle", "config", "inputs", "layers", "attention", "outputs", "padding", "pretrained"},
    "heads": {"_paddle", "config", "inputs", "layers", "outputs", "model", "padding"},
    "behaviour": {"_paddle", "auto", "checkpoint"},
    "tuning": {"_files", "_paddle", "hub"},
    "verification": {"config", "checkpoint", "hub", "tokenizer", "training", "behaviour"},
    "export": {
        "_files",
        "_paddle",
        "attention",
        "auto",
        "checkpoint",
        "hub",
        "model",
        "operator",
        "pretrained",
        "tokenizer",
    },
    "training": {
        "_children",
        "_files",
        "_paddle",
        "checkpoint",
        "config",
        "forms",
        "heads",
        "hub",
        "layers",
        "operator",
        "padding",
        "pretrained",
        "tokenizer",
    },
    "pipelines": {
        "_files",
        "_paddle",
        "checkpoint",
        "config",
        "forms",
        "heads",
        "hub",
        "model",
        "operator",
        "padding",
        "tokenizer",
        "training",
    },
    "commands": {
        "_children",
        "_paddle",
        "checkpoint",
        "export",
        "forms",
        "hub",
        "operator",
        "pipelines",
        "tokenizer",
        "training",
        "tuning",
        "verification",
    },
    "cli": {"_streams", "checkpoint", "commands"},
    "__main__": {"cli"},
    "auto": {"config", "checkpoint", "hub", "pretrained", "model", "heads"},
    "interop": {"auto", "config", "model", "tokenizer"},
}
# What needs Paddle when it is imported; everything else must not.
NEEDS_PADDLE = {
    "_paddle",
    "layers",
    "inputs",
    "pretrained",
    "operator",
    "forms",
    "native",
    "padding",
    "attention",
    "model",
    "heads",
    "auto",
    "behaviour",
    "export",
    "interop",
}


def _imports(file: Path) -> "set[str]":
    """Every module a file imports, absolute, wherever in the file."""
    package = file.relative_to(ROOT).parent.parts
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                [*package[: len(package) - node.level + 1], *filter(None, [node.module])]
                if node.level
                else [node.module]
            )
            # `from package import module` may name a module.
            found |= {".".join(base)} | {".".join([*base, alias.name]) for alias in node.names}
    return found


def _files(folder: str) -> "list[Path]":
    return sorted((ROOT / folder).rglob("*.py"))


def _part(file: Path) -> str:
    inside = file.relative_to(ROOT / "paddle_nezha").parts
    return inside[0].removesuffix(".py")


@pytest.mark.parametrize("file", _files("paddle_nezha"), ids=lambda file: str(file.relative_to(ROOT)))
def test_arrows_go_one_way(file):
    part = _part(file)
    if part == "__init__":
        return
    named = {name.split(".")[1] for name in _imports(file) if name.startswith("paddle_nezha.")}
    known = {name for name in named if name in ALLOWED}
    assert known - {part} <= ALLOWED[part]


@pytest.mark.parametrize("file", _files("paddle_nezha"), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_package_imports_neither_the_reference_nor_the_judge_nor_the_shelf(file):
    assert not {name.split(".")[0] for name in _imports(file)} & {
        "torch_ref",
        "parity",
        "weights",
        "transformers",
        "paddlenlp",
    }


@pytest.mark.parametrize("file", _files("torch_ref"), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_reference_shares_the_config_alone(file):
    shared = {name for name in _imports(file) if name.startswith(("paddle_nezha", "paddle"))}
    assert shared <= {"paddle_nezha.config", "paddle_nezha.config.NeZhaConfig"}


def test_weights_and_parity_are_not_in_the_wheel():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'packages.find.include = ["paddle_nezha*"]' in text
    assert '"paddlepaddle' not in text.partition("dependencies = [")[2].partition("]")[0]


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])
sys.meta_path.insert(0, Blocked())
"""


def _run_without(blocked: "set[str]", code: str) -> "subprocess.CompletedProcess[str]":
    script = BLOCKED.format(blocked=sorted(blocked)) + code
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_config_tokenizer_and_checkpoints_work_without_any_framework(tmp_path):
    done = _run_without(
        {"paddle", "torch", "transformers", "paddlenlp", "tensorflow", "jieba"},
        f"""
import paddle_nezha
folder = {str(ROOT / "weights" / "nezha-seeded-demo")!r}
assert paddle_nezha.NeZhaConfig.from_pretrained(folder).hidden_size == 64
ids = paddle_nezha.NeZhaTokenizer.from_pretrained(folder)("今天早上", return_tensors="np")["input_ids"]
from paddle_nezha.checkpoint import pdparams
assert len(pdparams.read(folder + "/model_state.pdparams")) == 78
print(ids.shape)
""",
    )
    assert (done.returncode, done.stdout) == (0, "(1, 6)\n"), done.stderr


def test_q67_the_model_runs_without_torch(tmp_path):
    done = _run_without(
        {"torch", "transformers", "paddlenlp", "tensorflow", "jieba"},
        f"""
import paddle_nezha
folder = {str(ROOT / "weights" / "nezha-seeded-demo")!r}
model, tokenizer = paddle_nezha.load(folder), paddle_nezha.NeZhaTokenizer.from_pretrained(folder)
print(list(model(**tokenizer("今天早上", return_tensors="pd"))[0].shape))
""",
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[1, 6, 778]"]), done.stderr


@pytest.mark.parametrize("part", sorted(NEEDS_PADDLE))
def test_without_paddle_the_message_gives_both_install_lines(part):
    done = _run_without({"paddle"}, f"import paddle_nezha.{part}")
    assert done.returncode == 1
    assert "pip install 'paddle_nezha[cpu]'" in done.stderr and "pip install 'paddle_nezha[gpu]'" in done.stderr


def test_importing_the_package_imports_no_framework():
    code = "import sys, paddle_nezha; print(sorted({'paddle', 'torch', 'numpy', 'tokenizers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_can_be_had():
    import paddle_nezha

    assert all(getattr(paddle_nezha, name) is not None for name in paddle_nezha.__all__)
    assert set(paddle_nezha.__all__) <= set(dir(paddle_nezha))
    with pytest.raises(AttributeError, match="no attribute 'NeZhaModell'"):
        paddle_nezha.NeZhaModell  # noqa: B018
