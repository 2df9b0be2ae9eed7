"""One request to the Hub: whether it answers, and whose the token is."""

from __future__ import annotations

import os
import re
from typing import Any

from zenit_hub import env
from zenit_hub.deadline import within
from zenit_hub.maintain.doctor.facts import Hub, Offline, Reached, Token, Unreached
from zenit_hub.redact import redacted_text
from zenit_hub.text import printable

REQUEST_S = 5.0
DEADLINE_S = 7.0
"""A name server that hangs is not stopped by a request's timeout."""

_SENDABLE = re.compile(r"[\x21-\x7e]+")
"""What a header carries."""

_WORDS = {
    "ProxyError": "the proxy does not let it through",
    "UnsupportedProtocol": "its address has no https:// in front",
    "InvalidURL": "its address is none",
    "TimeoutException": f"no answer in {REQUEST_S:g} s",
    "NetworkError": "no connection",
    "RemoteProtocolError": "the connection broke",
}
"""The client's errors by name; it stands on httpx (1.x) or httpx2 (2.x), whose classes have these names."""

_CAUSES = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here (a proxy's own? SSL_CERT_FILE names what is)",
    "Name or service not known": "its name cannot be resolved",
    "Temporary failure in name resolution": "its name cannot be resolved",
    "No address associated with hostname": "its name cannot be resolved",
    "Connection refused": "the connection is refused",
}
"""What the system's words within such an error mean."""


def ask_hub() -> Hub:
    """Never raises, and never shows the token: what the client says of an error may quote it."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return Hub(Offline(), Token("unchecked", why="HF_HUB_OFFLINE is set"))
    try:
        return within(DEADLINE_S, _ask)
    except Exception as error:
        return unreached(_in_words(error))


def unreached(why: str) -> Hub:
    """Nothing usable came."""
    return Hub(Unreached(_endpoint(), why), Token("unchecked", why="the Hub was not reached"))


def _endpoint() -> str:
    from huggingface_hub import constants

    return printable(redacted_text(str(constants.ENDPOINT)))


def _ask() -> Hub:
    from huggingface_hub import constants, get_session, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    # One that cannot be sent would end every request of the client with an error.
    sent = token if token is not None and _SENDABLE.fullmatch(token) else None
    headers = {"authorization": f"Bearer {sent}"} if sent else {}
    answer = get_session().get(f"{constants.ENDPOINT}/api/whoami-v2", headers=headers, timeout=REQUEST_S)
    status, body = int(answer.status_code), _json(answer)
    if status >= 500:
        return unreached(f"it answers {status}")
    if not isinstance(body, dict):
        return unreached(f"what answers there is no Hub ({status}, and no JSON): a proxy's page?")
    if token is None:
        return Hub(Reached(_endpoint()), Token("none"))
    source = env.HUB_TOKEN if os.environ.get(env.HUB_TOKEN) else "`hf auth login`"
    return Hub(Reached(_endpoint()), _token(status, body, source) if sent else Token("malformed", source))


def _token(status: int, body: dict[str, Any], source: str) -> Token:
    """What the answer about a token says of it."""
    if status == 401:
        return Token("refused", source)
    name = body.get("name")
    if status != 200 or not isinstance(name, str):
        return Token("unchecked", source, why=f"the Hub answers {status}")
    return Token("accepted", source, account=printable(name, limit=100))


def _json(answer: Any) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _in_words(error: Exception) -> str:
    cause = next((words for part, words in _CAUSES.items() if part in str(error)), None)
    kinds = (kind.__name__ for kind in type(error).__mro__)
    known = cause or next((_WORDS[kind] for kind in kinds if kind in _WORDS), None)
    return known or (
        str(error) if isinstance(error, TimeoutError) else f"its client failed ({type(error).__name__})"
    )
