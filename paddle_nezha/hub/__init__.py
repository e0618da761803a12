"""Published checkpoints: what exists, where it is, and how it comes here whole. Needs no framework.

from paddle_nezha.hub import fetch
folder = fetch("nezha-base-chinese")  # a folder that `from_pretrained` opens
"""

from .errors import FetchError
from .fetching import Check, Status, fetch, list_entries
from .pins import check_pin, pin, read_pin, sha256_of, unpin
from .places import cache_home
from .registry import Entry, RemoteFile, is_published, published
from .resolving import resolve

__all__ = [
    "Check",
    "Entry",
    "FetchError",
    "RemoteFile",
    "Status",
    "cache_home",
    "check_pin",
    "fetch",
    "is_published",
    "list_entries",
    "pin",
    "published",
    "read_pin",
    "resolve",
    "sha256_of",
    "unpin",
]
