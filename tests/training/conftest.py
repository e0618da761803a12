"""A small corpus in real files, and settings for a model that learns it in seconds."""

from pathlib import Path

import numpy as np
import pytest

from paddle_nezha.training.corpus.building import build_corpus

DEMO = Path(__file__).resolve().parents[2] / "weights" / "nezha-seeded-demo"
WORDS = "今天 早上 我们 去 公园 天气 很 好 他 喜欢 读书 北京 大学 学生 老师 工作 电脑 中国 经济 发展".split()


def sentences(rng, count):
    return ["".join(rng.choice(WORDS, rng.integers(4, 14))) + "。" for _ in range(count)]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The folder of a corpus of 60 documents, of which some are held out."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(7)
    documents = ["\n".join(sentences(rng, rng.integers(2, 9))) for _ in range(60)]
    (folder / "texts.txt").write_text("\n\n".join(documents), encoding="utf-8")
    build_corpus([folder / "texts.txt"], folder / "corpus", DEMO, held_out=0.2)
    return folder / "corpus"


@pytest.fixture
def settings(corpus, tmp_path):
    """A factory of settings: ``settings(steps=3)``."""

    def make(**changes):
        from paddle_nezha.training.pretraining.settings import PretrainingSettings

        small = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 48,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
        }
        given = {
            "corpus": str(corpus),
            "output": str(tmp_path / "run"),
            "config": small,
            "batch_size": 8,
            "max_length": 32,
            "learning_rate": 1e-3,
            "steps": 6,
            "eval_every": None,
            "workers": 0,
            "curves": False,
            **changes,
        }
        if changes.get("model"):
            del given["config"]
        return PretrainingSettings(**given)

    return make
