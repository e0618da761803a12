"""Text to ids and back: WordPiece on the Rust `tokenizers` library, with PaddleNLP's calls and BERT's ids."""

from .encoding import BatchEncoding
from .nezha import NeZhaTokenizer

__all__ = ["BatchEncoding", "NeZhaTokenizer"]
