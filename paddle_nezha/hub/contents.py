"""What a file must look like before it may be called by its name: cheap checks that need no checksum."""

import os
import zipfile
from pathlib import Path
from typing import Optional

from paddle_nezha.checkpoint.errors import foreign

from .registry import BYTES_PER_PARAMETER, CONFIG_NAME, PDPARAMS_NAME, TORCH_NAME, Entry, RemoteFile

_PICKLE, _PICKLE_END, _ZIP, _BOM = b"\x80", b".", b"PK\x03\x04", b"\xef\xbb\xbf"
_STARTS = {PDPARAMS_NAME: (_PICKLE,), TORCH_NAME: (_ZIP, _PICKLE), CONFIG_NAME: (b"{",)}
# Files without the pretraining heads circulate too; those hold 1.2 % of base's parameters, 0.7 % of large's.
_LEAST_SHARE = 0.98


def impostor(file: RemoteFile, start: bytes) -> Optional[str]:
    """What the first bytes of a file are when they are not the file's, else None."""
    text = start.removeprefix(_BOM)
    starts = _STARTS.get(file.name)
    if text.lstrip().startswith(starts) if starts else foreign(text) is None:
        return None
    return foreign(text) or f"something that begins with {start[:40]!r}"


def incomplete(entry: Entry, file: RemoteFile, path: Path) -> Optional[str]:
    """Why weights of the right beginning cannot be the whole file, else None. Small files are left to their sha256."""
    if not file.is_weights:
        return None
    with open(path, "rb") as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(-1, os.SEEK_END)
        last = content.read(1)
        is_zip = content.seek(0) == 0 and content.read(len(_ZIP)) == _ZIP
        has_end = zipfile.is_zipfile(content) if is_zip else last == _PICKLE_END
    if file.name != PDPARAMS_NAME:
        # torch's older format, which is no zip, puts its numbers behind its pickles and has no end to look for.
        has_end = has_end or not is_zip
    elif size < (least := int(_LEAST_SHARE * BYTES_PER_PARAMETER * entry.parameters)):
        return f"expected at least {least:,} bytes ({entry.parameters:,} parameters in float32), found {size:,}"
    return None if has_end else f"its {size:,} bytes lack the end that such a file has"
