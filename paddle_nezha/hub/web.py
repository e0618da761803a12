"""The rules of addresses, headers and certificates."""

import email.utils
import ipaddress
import ssl
from datetime import datetime, timezone
from typing import Any, Optional
from urllib.parse import urlsplit

from .errors import FetchError


def refuse_insecure(url: str, source: str) -> None:
    """https only; plain http on this very machine, for tests and local mirrors, unless it is a step down."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise FetchError(f"{url!r} is no address ({error}): write https://HOST/PATH.") from None
    if parts.scheme == "https":
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname or "") and urlsplit(source).scheme == "http":
        return
    led = "" if url == source else f", to which {source} redirects,"
    raise FetchError(f"{url}{led} is refused: only https is used, since anyone on the way can change what http brings.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def validator(headers: Any) -> Optional[str]:
    """The mark by which `If-Range` knows a version. A weak ETag does not say that the bytes are the same."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified")


def seconds(retry_after: Optional[str]) -> Optional[float]:
    """`Retry-After` holds seconds or a date."""
    if retry_after is None:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        date = email.utils.parsedate_to_datetime(retry_after)
    except (TypeError, ValueError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())


def is_about_a_certificate(error: BaseException) -> bool:
    """Whether a chain of wrapped errors ends in a certificate that was refused."""
    seen: "list[Any]" = [error]
    for item in seen:
        if isinstance(item, ssl.SSLCertVerificationError):
            return True
        inner = [*getattr(item, "args", ()), getattr(item, "reason", None), getattr(item, "__cause__", None)]
        seen.extend(new for new in inner if isinstance(new, BaseException) and all(new is not old for old in seen))
    return False
