"""The client's requests, watched: each has a timeout, and none is retried behind our back.

The client's default is no timeout at all, and it repeats some requests by itself for up to half a minute, or
for as long as a ``Retry-After`` says, without a word. Here every request of a call has a timeout; an answer
that another try may mend, and a connection that fails, end the call at once; and a call that nobody waits for
any more sends nothing further, so that no commit lands after it was given up.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, TypeVar

from zenit_hub.deadline import within
from zenit_hub.maintain.publish.outcomes import HubFailure, Trouble

T = TypeVar("T")

BACKSTOP_S = 5.0
"""A name server that hangs is not stopped by a request's timeout; the call is left behind this much later."""

_TRANSPORT_ERRORS = frozenset({"TimeoutException", "NetworkError", "RemoteProtocolError", "ProxyError"})
"""The client stands on httpx (1.x) or httpx2 (2.x), whose classes have these names."""

_LIMIT_RESET = re.compile(r"\br=0\s*;\s*t=(\d{1,9})")

_lock = threading.Lock()


@dataclass(slots=True)
class Call:
    """One call of the client. ``request_s`` and ``until_s``: the timeout of each of its requests, and the
    moment (monotonic) after which it sends none. ``committing``: the request that has the effect went out."""

    request_s: float
    until_s: float
    given_up: bool = False
    committing: bool = False


_current: ContextVar[Call | None] = ContextVar("zenit_hub_call", default=None)


def watched(work: Callable[[], T], *, request_s: float, total_s: float) -> T:
    """``work()``, all of it done after ``total_s``. Raises what it raises, and :class:`HubFailure`."""
    call = Call(request_s, time.monotonic() + total_s)

    def run() -> T:
        _current.set(call)
        return work()

    try:
        _watch_the_client()
        return within(total_s + BACKSTOP_S, run)
    except TimeoutError:
        raise HubFailure(Trouble.UNKNOWN, said="no answer in time") from None
    except HubFailure:
        raise
    except Exception as error:
        failure = failure_of(error)
        if failure.trouble is Trouble.CLIENT and call.committing:
            # The effect may be there: what failed is the reading of the answer.
            raise HubFailure(Trouble.UNKNOWN, said=failure.said) from error
        raise failure from error
    finally:
        call.given_up = True


def failure_of(error: Exception) -> HubFailure:
    """What an exception of the client means. Its own text may hold an address; only the Hub's words are taken,
    as they are."""
    from huggingface_hub import errors

    if isinstance(error, HubFailure):
        return error
    if isinstance(error, errors.HfHubHTTPError):
        said = _one_line(error.server_message)
        status: int = error.response.status_code
        return HubFailure(
            _trouble(error, status), status=status, said=said, wait_s=asked_wait_s(error.response.headers)
        )
    if isinstance(error, errors.LocalTokenNotFoundError):
        return HubFailure(Trouble.UNAUTHORIZED)
    if isinstance(error, ValueError) and str(error).startswith("Invalid metadata in README.md"):
        words = str(error).removeprefix("Invalid metadata in README.md").strip(". \n-")
        return HubFailure(Trouble.BAD_METADATA, said=_one_line(words))
    # json's error is a ValueError too: an answer that is none, from something between here and the Hub.
    lost = isinstance(error, errors.LocalEntryNotFoundError) or type(error).__name__ == "JSONDecodeError"
    reason = getattr(error, "strerror", None)
    said = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    return HubFailure(Trouble.UNKNOWN if lost or _is_transport(error) else Trouble.CLIENT, said=said)


def _trouble(error: Exception, status: int) -> Trouble:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return Trouble.GATED
    if isinstance(error, errors.RevisionNotFoundError):
        return Trouble.NO_REVISION
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return Trouble.NO_FILE
    if isinstance(error, errors.RepositoryNotFoundError):
        # To those who are not logged in a private repo and one that is not there are 401.
        return Trouble.UNAUTHORIZED if status == 401 else Trouble.NO_REPO
    return of_status(status)


def of_status(status: int) -> Trouble:
    """What an HTTP status means for a call that should have had an effect."""
    if status == 408 or status >= 500:
        return Trouble.UNKNOWN
    by_status = {
        401: Trouble.UNAUTHORIZED,
        403: Trouble.FORBIDDEN,
        409: Trouble.BUSY,
        412: Trouble.STALE_PARENT,
        429: Trouble.RATE_LIMITED,
    }
    return by_status.get(status, Trouble.REFUSED)


def asked_wait_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """How long the Hub asks to wait: ``Retry-After`` (seconds or a date), or the ``t`` of ``RateLimit``."""
    after = (headers.get("Retry-After") or "").strip()
    if after.isdecimal():
        return float(after[:9])
    if after:
        try:
            then = parsedate_to_datetime(after)
        except ValueError:
            return None
        then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
        return max((then - (now or datetime.now(timezone.utc))).total_seconds(), 0.0)
    reset = _LIMIT_RESET.search(headers.get("RateLimit") or "")
    return float(reset[1]) if reset else None


def _watch_the_client() -> None:
    """From here on all sessions of the client are watched; requests that belong to no call of ours go by."""
    from huggingface_hub import get_session, set_client_factory

    with _lock:
        session = get_session()
        kind = type(session)
        if getattr(kind, "watched_by_zenit_hub", False):
            return
        plain = kind.send

        def send(self: Any, request: Any, **options: Any) -> Any:
            return _send(lambda: plain(self, request, **options), request)

        members = {"send": send, "watched_by_zenit_hub": True, "__module__": kind.__module__}
        made = type("WatchedClient", (kind,), members)
        hooks, timeout, follow = session.event_hooks, session.timeout, session.follow_redirects
        set_client_factory(lambda: made(event_hooks=hooks, timeout=timeout, follow_redirects=follow))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # somebody's own variable wants them: then they are shown
        # The package gives its names lazily, which a type checker does not see.
        import_module("huggingface_hub.utils").disable_progress_bars()


def _send(plain: Callable[[], Any], request: Any) -> Any:
    call = _current.get()
    if call is None:
        return plain()
    left_s = call.until_s - time.monotonic()
    if call.given_up or left_s <= 0:
        raise HubFailure(Trouble.UNKNOWN, said="no answer in time")
    given = request.extensions.get("timeout") or {}
    longest_s = min(call.request_s, left_s)
    request.extensions["timeout"] = {
        step: min(given.get(step) or longest_s, longest_s) for step in ("connect", "read", "write", "pool")
    }
    if request.method == "POST" and "/commit/" in request.url.path:
        call.committing = True
    try:
        response = plain()
    except HubFailure:
        raise
    except Exception as error:
        if _is_transport(error):
            raise HubFailure(Trouble.UNKNOWN, said=type(error).__name__) from error
        raise
    trouble = of_status(response.status_code)
    if trouble in (Trouble.UNKNOWN, Trouble.RATE_LIMITED):
        response.close()
        raise HubFailure(
            trouble,
            status=response.status_code,
            said=_one_line(response.headers.get("X-Error-Message")),
            wait_s=asked_wait_s(response.headers),
        )
    return response


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _is_transport(error: Exception) -> bool:
    return any(kind.__name__ in _TRANSPORT_ERRORS for kind in type(error).__mro__)
