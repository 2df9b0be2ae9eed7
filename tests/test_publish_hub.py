"""The calls to the Hub: their timeouts, what their failures mean, and that nothing goes on behind our back."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone

import pytest
from huggingface_hub import HfApi, close_session, constants, get_session
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from tests.rigs.hub import LoopbackHub
from tests.rigs.publishing import COMMITS, OWNER, REPO, Publisher
from zenit_hub.maintain.publish import watched
from zenit_hub.maintain.publish.hub import Entry, Hub, Message, Timeouts, blob_id
from zenit_hub.maintain.publish.outcomes import HubFailure, Trouble
from zenit_hub.maintain.publish.watched import asked_wait_s, failure_of, of_status

pytest_plugins = ("tests.rigs.publishing_fixtures",)

NOW = datetime(2026, 12, 1, 15, 0, 0, tzinfo=timezone.utc)


@pytest.fixture
def ours(publisher: Publisher) -> Hub:
    """The owner's side of the repo."""
    return Hub(REPO, OWNER, endpoint=publisher.hub.url)


def send(hub: Hub, parent: str, path: str = "a.txt") -> str:
    files = {path: b"a"}
    return hub.commit(files, Message("t", ""), revision="main", parent=parent, create_pr=False).commit


# --- waiting


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "271"}, 271.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "Tue, 01 Dec 2026 15:00:30 GMT"}, 30.0),
        ({"Retry-After": "Tue, 01 Dec 2026 14:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "9" * 400}, 999999999.0),
        ({"RateLimit": '"api";r=0;t=55'}, 55.0),
        ({"RateLimit": '"api";r=12;t=55'}, None),
        ({"RateLimit": '"api";r=0;t=55', "Retry-After": "7"}, 7.0),
        ({}, None),
    ],
)
def test_how_long_the_hub_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, a date, or the window's rest; nothing where it says nothing that can be used."""
    assert asked_wait_s(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (400, Trouble.REFUSED),
        (401, Trouble.UNAUTHORIZED),
        (403, Trouble.FORBIDDEN),
        (408, Trouble.UNKNOWN),
        (409, Trouble.BUSY),
        (412, Trouble.STALE_PARENT),
        (413, Trouble.REFUSED),
        (429, Trouble.RATE_LIMITED),
        (500, Trouble.UNKNOWN),
        (504, Trouble.UNKNOWN),
        (599, Trouble.UNKNOWN),
    ],
)
def test_what_a_status_means(status: int, trouble: Trouble) -> None:
    """Every one means something."""
    assert of_status(status) is trouble


def test_what_else_an_exception_of_the_client_means() -> None:
    """The network failed, or the client did; its own text, which may hold an address, is not taken over."""
    lost = failure_of(LocalEntryNotFoundError("no https://user:secret@host"))
    assert (lost.trouble, lost.said) == (Trouble.UNKNOWN, "LocalEntryNotFoundError")
    own = failure_of(HFValidationError("https://secret"))
    assert (own.trouble, own.said) == (Trouble.CLIENT, "HFValidationError")
    disk = failure_of(OSError(28, "No space left on device", "/home/somebody"))
    assert (disk.trouble, disk.said) == (Trouble.CLIENT, "OSError: No space left on device")


# --- requests


def test_every_request_has_a_timeout(publisher: Publisher) -> None:
    """Whatever the client's default is; each ends soon and says what it was."""
    quick = Timeouts(read_s=0.03, send_s=0.03, total_s=3)
    ours = Hub(REPO, OWNER, endpoint=publisher.hub.url, timeouts=quick)
    head = publisher.hub.head(REPO)
    calls = [
        lambda: ours.check_access(write=True),
        lambda: ours.head("main"),
        lambda: ours.entries(head, ["config.json"]),
        lambda: ours.content(head, Entry("config.json", 1, "0" * 40)),
        lambda: send(ours, head),
        lambda: ours.open_pulls("zenit"),
        lambda: ours.pull(1),
        ours.user,
    ]
    publisher.hub.stall()
    began_s = time.monotonic()
    for call in calls:
        with pytest.raises(HubFailure) as caught:
            call()
        assert (caught.value.trouble, caught.value.said) == (Trouble.UNKNOWN, "ReadTimeout")
    assert time.monotonic() - began_s < len(calls) * 2.0


def test_the_client_does_not_repeat_a_request_by_itself(publisher: Publisher, ours: Hub) -> None:
    """Its preupload would wait 271 s five times without a word; here the answer is ours at once."""
    publisher.hub.fail("POST", "*/preupload/*", times=None, retry_after_s=271)
    began_s = time.monotonic()
    with pytest.raises(HubFailure) as caught:
        send(ours, publisher.first)

    assert (caught.value.trouble, caught.value.wait_s, caught.value.status) == (
        Trouble.RATE_LIMITED,
        271.0,
        429,
    )
    assert publisher.hub.count("POST", "*/preupload/*") == 1
    assert time.monotonic() - began_s < 5


def test_a_call_that_was_given_up_sends_nothing_more(
    publisher: Publisher, ours: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left behind in its first request, it must not commit when that one is answered at last."""
    monkeypatch.setattr(watched, "BACKSTOP_S", -8.0)
    hub = publisher.hub
    hub.fail("POST", "*/preupload/*", stall_s=60)
    slow = Hub(REPO, OWNER, endpoint=hub.url, timeouts=Timeouts(read_s=9, send_s=9, total_s=8.3))
    with pytest.raises(HubFailure, match="no answer in time"):
        send(slow, publisher.first)
    hub.heal()
    left = [thread for thread in threading.enumerate() if thread.name == "zenit-hub"]
    for thread in left:
        thread.join(5)

    assert hub.count("POST", COMMITS) == 0
    assert hub.head(REPO) == publisher.first


def test_other_users_of_the_client_are_left_alone(publisher: Publisher, ours: Hub) -> None:
    """Requests that are not ours keep their own timeout and their own errors."""
    ours.head("main")
    publisher.hub.fail("GET", "/api/models/*", status=503)
    with pytest.raises(Exception, match="503") as caught:
        HfApi(endpoint=publisher.hub.url).model_info(REPO)

    assert not isinstance(caught.value, HubFailure)
    assert get_session().timeout.read is None


def test_an_answer_that_is_no_json_is_no_answer(publisher: Publisher, ours: Hub, hub: LoopbackHub) -> None:
    """A page of something between here and the Hub, instead of the commit's id: it may have landed."""
    from tests.rigs.hub.wire import Answer

    act = hub._act

    def garbled(call: object) -> Answer:
        answer = act(call)
        return Answer(200, {}, b"<html>") if "/commit/" in call.path else answer

    hub._act = garbled
    with pytest.raises(HubFailure) as caught:
        send(ours, publisher.first)
    assert caught.value.trouble is Trouble.UNKNOWN
    assert hub.head(REPO) != publisher.first


def test_the_hubs_words_never_hold_the_token(publisher: Publisher, ours: Hub) -> None:
    """Not even if it repeats it, nor a part of it where the line is cut."""
    publisher.hub.fail("POST", COMMITS, status=400).message = f"\x1b[31m{'x' * 186} {OWNER}"
    with pytest.raises(HubFailure) as caught:
        send(ours, publisher.first)
    assert caught.value.said == f"\\u001b[31m{'x' * 186} …"


def test_a_token_that_cannot_be_sent(publisher: Publisher) -> None:
    """The client fails before it asks: said by its kind."""
    broken = Hub(REPO, "hf_é\x01", endpoint=publisher.hub.url)
    with pytest.raises(HubFailure) as caught:
        broken.head("main")
    assert (caught.value.trouble, caught.value.said) == (Trouble.CLIENT, "UnicodeEncodeError")


# --- files


def test_an_entry_knows_its_content() -> None:
    """By git's id, and in LFS by its SHA-256; the size is looked at first."""
    data = b"hello\n"
    assert blob_id(data) == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert Entry("a", 6, blob_id(data)).holds(data)
    assert not Entry("a", 7, blob_id(data)).holds(data)
    assert not Entry("a", 6, blob_id(data)).holds(b"hullo\n")
    sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert Entry("a", 6, "0" * 40, sha256).holds(data)


def test_many_paths_are_asked_in_parts(publisher: Publisher, ours: Hub) -> None:
    """All answers together; folders and what is not there are left out."""
    publisher.hub.commit(REPO, {f"folder/{n}.txt": b"x" for n in range(450)})
    head = ours.head("main")
    found = ours.entries(head.commit, [*head.paths, "folder", "absent"])

    assert found.keys() == head.paths
    assert publisher.hub.count("POST", "*/paths-info/*") == 3


def test_an_absent_file(publisher: Publisher, ours: Hub) -> None:
    """Told apart from a network that failed."""
    with pytest.raises(HubFailure) as caught:
        ours.content(publisher.first, Entry("absent", 1, "0" * 40))
    assert caught.value.trouble is Trouble.NO_FILE


def test_what_comes_is_not_what_was_promised(publisher: Publisher, ours: Hub) -> None:
    """Another file than the one that the commit names: refused, after one more download."""
    with pytest.raises(HubFailure, match=r"what came for config\.json is another file"):
        ours.content(publisher.first, Entry("config.json", 3, "0" * 40))
    assert publisher.hub.count("GET", "*/resolve/*/config.json") == 2


def test_a_file_behind_a_redirect(publisher: Publisher, tmp_path: object) -> None:
    """As the real Hub gives it."""
    with LoopbackHub(redirects=True) as hub:
        other = Publisher(hub)
        head = other.hub.head(REPO)
        ours = Hub(REPO, OWNER, endpoint=hub.url)
        entry = ours.entries(head, ["README.md"])["README.md"]
        assert ours.content(head, entry) == hub.read(REPO, "README.md")


@pytest.mark.parametrize("proxy", ["nonsense://SESAME", "socks5://u:SESAME@127.0.0.1:1"])
def test_a_proxy_that_the_client_cannot_use(
    publisher: Publisher, ours: Hub, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """A failure like any other, without the address."""
    for name in ("ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    close_session()
    with pytest.raises(HubFailure) as caught:
        ours.head("main")
    monkeypatch.undo()
    close_session()

    assert caught.value.trouble is Trouble.CLIENT
    assert "SESAME" not in caught.value.sentence


def test_a_login_that_may_not_be_used_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """``HF_HUB_DISABLE_IMPLICIT_TOKEN``: the client sends only a token that was typed."""
    monkeypatch.setenv("HF_TOKEN", OWNER)
    for disabled in (True, False):
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", disabled)
        assert Hub(REPO).has_token is not disabled
        assert Hub(REPO, OWNER).has_token
