"""Text to a tokenised set: sharded, read by memory map, larger than memory if need be."""

from .building import CorpusReport, build_corpus
from .errors import CorpusError
from .stored import Corpus, Shard

__all__ = ["Corpus", "CorpusError", "CorpusReport", "Shard", "build_corpus"]
