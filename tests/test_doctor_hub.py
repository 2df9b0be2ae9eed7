"""The doctor's request to the Hub, and its checks of the Hub and the token."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from huggingface_hub import constants

from tests.doctor_facts import ANSWERS, facts, found
from tests.rigs.hub import LoopbackHub
from zenit_hub.maintain.doctor.facts import Hub, Offline, Reached, Token, Unreached
from zenit_hub.maintain.doctor.hub import ask_hub

pytest_plugins = ("tests.rigs.hub.fixtures",)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Ask this address with this token."""

    def ask_there(url: str, token: str | None = None) -> Hub:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        if token is None:
            monkeypatch.delenv("HF_TOKEN", raising=False)
        else:
            monkeypatch.setenv("HF_TOKEN", token)
        return ask_hub()

    return ask_there


def test_what_the_hub_says_of_a_token(hub: LoopbackHub, asked: Any, tmp_path: Path) -> None:
    """None, accepted, refused, one that cannot be sent, one that `hf auth login` stored."""
    token = hub.account("ann")

    assert asked(hub.url) == Hub(Reached(hub.url), Token("none"))
    assert asked(hub.url, token).token == Token("accepted", "HF_TOKEN", "ann")
    assert asked(hub.url, "hf_wrong").token == Token("refused", "HF_TOKEN")
    assert asked(hub.url, "hf_\x01").token == Token("malformed", "HF_TOKEN")
    (tmp_path / "token").write_text(token)
    assert asked(hub.url).token == Token("accepted", "`hf auth login`", "ann")
    assert hub.count(path="/api/whoami-v2") == 5


def test_a_hub_that_has_enough_of_us_answers_nevertheless(hub: LoopbackHub, asked: Any) -> None:
    """It is there; the token is not checked."""
    hub.fail(retry_after_s=30)

    assert asked(hub.url, hub.account("ann")) == Hub(
        Reached(hub.url), Token("unchecked", "HF_TOKEN", why="the Hub answers 429")
    )


class Page(BaseHTTPRequestHandler):
    """A login page in front of the network."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>log in</html>")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def login_page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_answers_may_be_no_hub(login_page: str, asked: Any, quiet_client: None) -> None:
    assert "no JSON): a proxy's page?" in asked(login_page).reach.why


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9", "the connection is refused"),
        ("http://no-such-host.invalid", "its name cannot be resolved"),
        ("hub.example", "its address has no https:// in front"),
        ("http://user:geheim@127.0.0.1:9", "the connection is refused"),
    ],
)
def test_why_the_hub_cannot_be_reached(url: str, why: str, asked: Any, quiet_client: None) -> None:
    """In words; no user of an address is shown."""
    reach = asked(url, "hf_geheim").reach

    assert isinstance(reach, Unreached)
    assert reach.why == why
    assert "geheim" not in reach.endpoint


def test_offline_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, hub: LoopbackHub) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)

    assert isinstance(ask_hub().reach, Offline)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("of", "statuses"),
    [
        (Hub(Offline(), Token("unchecked", why="x")), ("ok", "ok")),
        (ANSWERS, ("ok", "ok")),
        (Hub(Reached("h"), Token("accepted", "HF_TOKEN", "ann")), ("ok", "ok")),
        (Hub(Reached("h"), Token("refused", "`hf auth login`")), ("ok", "fail")),
        (Hub(Reached("h"), Token("malformed", "HF_TOKEN")), ("ok", "fail")),
        (Hub(Reached("h"), Token("unchecked", "HF_TOKEN", why="x")), ("ok", "warn")),
        (Hub(Unreached("h", "x"), Token("unchecked", why="x")), ("fail", "warn")),
    ],
)
def test_the_hub_and_the_token_are_told_apart(of: Hub, statuses: tuple[str, str]) -> None:
    """What is wrong has something to type."""
    told = [found(facts(hub=of), name) for name in ("hub", "token")]

    assert tuple(check.status for check in told) == statuses
    assert all(bool(check.next) is (check.status != "ok") for check in told)
