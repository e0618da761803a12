"""One address, one file: resumed after a cut, retried, checked while it streams.

`requests` brings proxies, certificates and connections. It has no resume, no lower limit on speed and no rule against
leaving https, which are here.
"""

import contextlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from tqdm import tqdm

from paddle_nezha import __version__

from . import web
from .errors import FetchError
from .partial import START_LENGTH, Partial, require_room

_PIECE = 1 << 18
_REDIRECTS = 10
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_COME_BACK_STATUSES = (408, 425, 429)
_HEX_DIGEST = re.compile(r'"?([0-9a-f]{64})"?')
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Patience:
    """How long to wait for what. Times in seconds.

    Args:
        connect: for a connection.
        silence: for the next byte.
        window, slowest: a connection that brings fewer than `slowest` bytes a second over `window` is given up.
        attempts: failures, without `progress` bytes gained between them, until it is an error.
        wait, longest_wait: the pause after the first failure, doubled after each further one up to the second.
        longest_retry_after: a server that asks for a longer pause than this is not waited for.
    """

    connect: float = 15.0
    silence: float = 60.0
    window: float = 60.0
    slowest: float = 1024.0
    attempts: int = 6
    progress: int = 1 << 20
    wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 300.0

    def pause(self, failures: int) -> float:
        """Doubling, and random in its upper half, so that many machines do not come back at the same moment."""
        longest = min(self.longest_wait, self.wait * 2.0 ** (failures - 1))
        return longest * random.uniform(0.5, 1.0)


PATIENCE = Patience()


class _Passing(Exception):
    """A failure that another attempt may not meet."""

    def __init__(self, message: str, retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Download:
    """The file at `url`, brought to `part` whole and checked.

    Args:
        url: https, or http on this very machine.
        part: where its bytes are gathered, with a note beside them; resumed from if they are there.
        sha256: what it must be, where known; `origin` says in messages who knows it.
        size: what it must be, where known. A server that offers another is refused before anything comes.
        impostor: says what the first bytes are when they are not such a file's.
        progress: a bar on stderr; None means only on a terminal.
    """

    def __init__(
        self,
        url: str,
        part: Path,
        *,
        sha256: Optional[str] = None,
        size: Optional[int] = None,
        origin: str = "as published",
        impostor: Callable[[bytes], Optional[str]] = lambda start: None,
        progress: Optional[bool] = None,
    ) -> None:
        self.url, self.impostor, self.progress = url, impostor, progress
        self.sha256, self.size, self.origin = sha256, size, origin
        self.patience = PATIENCE
        web.refuse_insecure(url, url)
        self.partial = Partial(part, url)

    def run(self) -> str:
        """Brings the file and gives its SHA-256.

        Raises:
            FetchError: it did not come, or is not what was expected. Bytes that a later call can use stay in `part`.
        """
        with requests.Session() as self.session, self._new_bar() as self.bar:
            self._complete()
            if self.partial.resumed and not self._is_expected():
                # Two servers, or two versions, under one mark: only a whole new copy can tell.
                self.partial.discard()
                self._complete()
        self._refuse_impostor()
        self._refuse_unexpected()
        return self.partial.digest.hexdigest()

    def _complete(self) -> None:
        failures, mark = 0, self.partial.length
        while not self.partial.is_complete:
            try:
                self._attempt()
                return
            except _Passing as failure:
                if self.partial.length - mark >= self.patience.progress:
                    failures, mark = 0, self.partial.length
                failures += 1
                if failures >= self.patience.attempts:
                    raise FetchError(
                        f"{self.url} did not come in {failures} attempts: {failure}. {self._kept()} "
                        "Look at the network and proxy settings, or name another source with mirror=."
                    ) from None
                time.sleep(self.patience.pause(failures) if failure.retry_after is None else failure.retry_after)

    def _attempt(self) -> None:
        try:
            with contextlib.closing(self._ask()) as response:
                self._receive(response)
        except (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError) as error:
            if web.is_about_a_certificate(error):
                raise FetchError(
                    f"{self.url}: the server's certificate is not accepted ({error}). If your network inspects "
                    "https, name its certificate authority's file in REQUESTS_CA_BUNDLE."
                ) from None
            raise _Passing(str(error)) from None

    # ---- the request

    def _ask(self) -> requests.Response:
        """The response that carries the file, redirects followed."""
        partial, url = self.partial, self.url
        headers = {"Accept-Encoding": "identity", "User-Agent": f"paddle_nezha/{__version__}"}
        if partial.length and partial.validator:
            headers.update({"Range": f"bytes={partial.length}-", "If-Range": partial.validator})
        for _ in range(_REDIRECTS + 1):
            response = self._get(url, headers)
            try:
                self._heed_hugging_face(response)
                target = response.headers.get("Location")
                if response.status_code not in _REDIRECT_STATUSES or not target:
                    self._refuse_status(response)
                    return response
                target = urljoin(url, target)
                web.refuse_insecure(target, url)
            except BaseException:
                response.close()
                raise
            response.close()
            url = target
        raise FetchError(f"{self.url} leads in circles: more than {_REDIRECTS} redirects, the last to {url}.")

    def _get(self, url: str, headers: "dict[str, str]") -> requests.Response:
        timeout = (self.patience.connect, self.patience.silence)
        try:
            return self.session.get(url, headers=headers, stream=True, allow_redirects=False, timeout=timeout)
        except ValueError as error:
            raise FetchError(f"{url} is no usable address, or redirects to none: {error}.") from None

    def _heed_hugging_face(self, response: requests.Response) -> None:
        """The hub states a large file's sha256 and size on the redirect that leads to it."""
        stated = _HEX_DIGEST.fullmatch(response.headers.get("X-Linked-ETag", ""))
        if stated and self.sha256 is None:
            self.sha256, self.origin = stated.group(1), "as the hub states"
        if stated and stated.group(1) != self.sha256:
            raise FetchError(
                f"{self.url} is another file now: expected sha256 {self.sha256} ({self.origin}), the hub states "
                f"{stated.group(1)}."
            )

    def _refuse_status(self, response: requests.Response) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        answer = f"{response.url} answered {status} {response.reason or ''}".rstrip()
        if status == 416:
            self.partial.discard()
            raise _Passing(f"{answer} to what was to be resumed")
        if status in _COME_BACK_STATUSES or status >= 500:
            raise _Passing(answer, self._retry_after(response, answer))
        raise FetchError(
            f"{answer} in place of the file. Open the address in a browser to see why; if the file has moved, name "
            "its new place with mirror=."
        )

    def _retry_after(self, response: requests.Response, answer: str) -> Optional[float]:
        seconds = web.seconds(response.headers.get("Retry-After"))
        if seconds is not None and seconds > self.patience.longest_retry_after:
            raise FetchError(
                f"{answer} and asks to come back in {seconds:.0f} s, longer than the "
                f"{self.patience.longest_retry_after:.0f} s waited here: try again then. {self._kept()}"
            )
        return seconds

    # ---- the body

    def _receive(self, response: requests.Response) -> None:
        self._begin(response)
        partial = self.partial
        self.bar.reset(total=partial.total)
        self.bar.update(partial.length)
        told = False
        with partial.opened() as file:
            for piece in self._pieces(response.raw):
                partial.write(file, piece)
                self.bar.update(len(piece))
                if not told and len(partial.start) >= START_LENGTH:
                    self._refuse_impostor()
                    told = True
        if not partial.length:
            raise _Passing(f"{response.url} sent an empty body")
        if partial.total is not None and partial.length != partial.total:
            raise _Passing(f"the connection was cut after {partial.length:,} of {partial.total:,} bytes")

    def _begin(self, response: requests.Response) -> None:
        """Settles whether the body goes on where we stopped, and whether there is room for it."""
        partial = self.partial
        headers = response.headers
        is_plain = headers.get("Content-Encoding", "identity") == "identity"
        if response.status_code == 206:
            found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
            total = int(found.group(2)) if found and found.group(2) != "*" else partial.total
            continues = found and int(found.group(1)) == partial.length and is_plain
            if not continues or (partial.length and total != partial.total):
                partial.discard()
                raise _Passing(f"{response.url} sent another part than asked for, of another version of the file")
            partial.resumed = partial.length > 0
        else:
            total = int(headers["Content-Length"]) if is_plain and headers.get("Content-Length", "").isdigit() else None
            if total and self.size and total != self.size:
                raise FetchError(
                    f"{self.url} is another file: expected {self.size:,} bytes, the server offers {total:,}. "
                    "Use another source with mirror=."
                )
            partial.restart(web.validator(headers) if is_plain else None, total)
        if partial.total is not None:
            require_room(partial.path.parent, partial.total - partial.length)

    def _pieces(self, raw: Any) -> Iterator[bytes]:
        patience = self.patience
        began, came = time.monotonic(), 0
        while piece := raw.read1(_PIECE, decode_content=True):
            yield piece
            came += len(piece)
            elapsed = time.monotonic() - began
            if elapsed >= patience.window:
                if came < patience.slowest * elapsed:
                    raise _Passing(f"slower than {patience.slowest:,.0f} bytes a second for {elapsed:.0f} s")
                began, came = time.monotonic(), 0

    # ---- the verdict

    def _refuse_impostor(self) -> None:
        what = self.impostor(self.partial.start)
        if what:
            self.partial.discard()
            raise FetchError(
                f"{self.url} did not give the file, but {what}. A proxy or login page may stand in between: open the "
                "address in a browser, or name another source with mirror=."
            )

    def _is_expected(self) -> bool:
        return self.sha256 in (None, self.partial.digest.hexdigest())

    def _refuse_unexpected(self) -> None:
        if not self._is_expected():
            found, length = self.partial.digest.hexdigest(), self.partial.length
            self.partial.discard()
            raise FetchError(
                f"{self.url} is not the file that is wanted: expected sha256 {self.sha256} ({self.origin}); came "
                f"sha256 {found}, {length:,} bytes. Nothing of it was kept. "
                "Try again later or name another source with mirror=."
            )

    def _kept(self) -> str:
        length = self.partial.length
        return (
            f"{length:,} bytes are kept in {self.partial.path}, and the next call goes on from there."
            if (length and self.partial.validator)
            else "Nothing was kept."
        )

    def _new_bar(self) -> Any:
        return tqdm(
            desc=urlsplit(self.url).path.rpartition("/")[2],
            disable=None if self.progress is None else not self.progress,  # None: tqdm asks whether it is a terminal
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
        )
