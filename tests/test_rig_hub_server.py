"""The loopback hub as a server: what it can be told to do wrong, and how it comes and goes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session

from tests.rigs.hub import LoopbackHub

pytest_plugins = ("tests.rigs.hub.fixtures",)

REPO = "zenit/altay"
CONFIG = b'{"model_type": "qwen2"}\n'
ROOT = Path(__file__).parents[1]
COMMIT = ("POST", "/api/models/*/commit/*")


def connect(hub: LoopbackHub) -> http.client.HTTPConnection:
    """A plain connection, where the real client would hide what is looked at."""
    return http.client.HTTPConnection("127.0.0.1", int(hub.url.rpartition(":")[2]))


@pytest.fixture
def api(hub: LoopbackHub) -> HfApi:
    """The owner's client, and the hub with the owner's repo."""
    hub.create(REPO, {"config.json": CONFIG}, token="hf_owner")
    return HfApi(endpoint=hub.url, token="hf_owner")


@pytest.fixture
def transport(hub: LoopbackHub) -> ModuleType:
    """The HTTP library below the client (httpx2 from 2.0 on, httpx before); its errors get through."""
    return sys.modules[type(get_session()).__module__.partition(".")[0]]


def commit(api: HfApi, content: bytes, parent: str | None = None) -> str:
    """Publish another config."""
    operations = [CommitOperationAdd("config.json", content)]
    return api.create_commit(REPO, operations, commit_message="m", parent_commit=parent).oid


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("status", [408, 409, 500, 503])
def test_status_before_and_after_the_effect(
    hub: LoopbackHub, api: HfApi, status: int, after_effect: bool
) -> None:
    """The client sees the same status; only a look at the branch tells whether the commit landed."""
    before = hub.head(REPO)
    fault = hub.fail(*COMMIT, status=status, after_effect=after_effect)
    with pytest.raises(HfHubHTTPError) as caught:
        commit(api, b"1")
    assert caught.value.response.status_code == hub.requests[-1].status == status
    assert (hub.head(REPO) != before) is after_effect
    commit(api, b"2")
    assert (fault.hits, hub.read(REPO, "config.json")) == (1, b"2")


@pytest.mark.parametrize("after_effect", [False, True])
def test_drop_before_and_after_the_effect(
    hub: LoopbackHub, api: HfApi, transport: ModuleType, after_effect: bool
) -> None:
    """The connection ends without an answer: a transport error, no HTTP error."""
    hub.fail(*COMMIT, drop=True, after_effect=after_effect)
    with pytest.raises(transport.RemoteProtocolError):
        commit(api, b"1")
    assert hub.requests[-1].status is None
    assert (hub.read(REPO, "config.json") == b"1") is after_effect


def test_stall_runs_into_the_timeout_of_the_client(
    hub: LoopbackHub, api: HfApi, transport: ModuleType
) -> None:
    """A stalled answer is late, not lost: without a timeout it comes."""
    hub.fail("GET", f"/api/models/{REPO}", stall_s=30)
    with pytest.raises(transport.ReadTimeout):
        api.model_info(REPO, timeout=0.05)
    hub.heal()
    hub.fail("GET", f"/api/models/{REPO}", stall_s=0.05)
    started_s = time.monotonic()
    assert api.model_info(REPO).sha == hub.head(REPO)
    assert time.monotonic() - started_s >= 0.05


def test_rate_limit_says_how_long_to_wait(hub: LoopbackHub, api: HfApi) -> None:
    """429 with the one header or the other, as the real client reads them."""
    hub.fail(*COMMIT, retry_after_s=7)
    hub.fail(*COMMIT, rate_limit_reset_s=55)
    with pytest.raises(HfHubHTTPError) as caught:
        commit(api, b"1")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "7"
    with pytest.raises(HfHubHTTPError, match="Retry after 55 seconds") as caught:
        commit(api, b"1")
    assert caught.value.response.headers["RateLimit"] == '"api";r=0;t=55'


def test_faults_skip_repeat_and_heal(hub: LoopbackHub, api: HfApi) -> None:
    """The third and fourth request fail, the fifth does not; a fault without end ends with ``heal``."""
    hub.fail("GET", "/api/models/*", skip=2, times=2, status=500)
    seen = []
    for _ in range(5):
        try:
            seen.append(api.model_info(REPO).sha is not None)
        except HfHubHTTPError:
            seen.append(False)
    assert seen == [True, True, False, False, True]
    hub.down()
    for _ in range(3):
        with pytest.raises(HfHubHTTPError, match="503"):
            api.model_info(REPO)
    hub.heal()
    assert api.model_info(REPO).sha


def test_everything_stalls_until_healed(hub: LoopbackHub, api: HfApi) -> None:
    """Whoever waits is answered when the hub heals."""
    fault = hub.stall()

    def heal_when_somebody_waits() -> None:
        while not fault.hits:
            time.sleep(0.001)
        hub.heal()

    healer = threading.Thread(target=heal_when_somebody_waits, daemon=True)
    healer.start()
    assert api.model_info(REPO).sha == hub.head(REPO)
    healer.join()
    assert fault.hits == 1


def test_stale_info_shows_the_old_head(hub: LoopbackHub, api: HfApi) -> None:
    """Model info lags by so many answers, and a commit on what it says is 412."""
    old = hub.head(REPO)
    hub.stale_info(REPO, times=2)
    new = hub.commit(REPO, {"config.json": b"elsewhere"})
    seen = api.model_info(REPO, revision="main").sha
    with pytest.raises(HfHubHTTPError, match="412"):
        commit(api, b"mine", parent=seen)
    assert [seen, api.model_info(REPO).sha, api.model_info(REPO).sha] == [old, old, new]


def test_somebody_is_first(hub: LoopbackHub, api: HfApi) -> None:
    """``meanwhile`` commits between the client's look at the head and its own commit."""
    head = api.model_info(REPO).sha
    hub.fail(*COMMIT, meanwhile=lambda: hub.commit(REPO, {"other.json": b"{}"}))
    with pytest.raises(HfHubHTTPError, match="412"):
        commit(api, b"mine", parent=head)
    assert hub.read(REPO, "other.json") == b"{}"
    commit(api, b"mine", parent=hub.head(REPO))


def test_warm_cache_hides_an_outage(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    """By branch the client returns the old file on 503, silently: why a publisher reads by commit."""
    path = hf_hub_download(REPO, "config.json", endpoint=hub.url, cache_dir=tmp_path)
    hub.commit(REPO, {"config.json": b"new"})
    hub.down()
    assert hf_hub_download(REPO, "config.json", endpoint=hub.url, cache_dir=tmp_path) == path
    assert Path(path).read_bytes() == CONFIG


def test_bug_of_the_rig_is_no_fault() -> None:
    """An exception inside of the hub is raised when it closes, whatever the client made of it."""
    hub = LoopbackHub()
    hub.fail(meanwhile=lambda: 1 / 0)
    with closing(connect(hub)) as connection:
        connection.request("GET", "/api/whoami-v2")
        with pytest.raises(ConnectionResetError):
            connection.getresponse()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        hub.close()


def test_ranges_over_one_kept_connection(hub: LoopbackHub, api: HfApi) -> None:
    """First, last and open ranges, one beyond the end, HEAD without a body: all on a single connection."""
    with closing(connect(hub)) as connection:
        for asked, status, content in (
            ("bytes=0-3", 206, CONFIG[:4]),
            ("bytes=4-", 206, CONFIG[4:]),
            ("bytes=-5", 206, CONFIG[-5:]),
            ("bytes=900-", 416, None),
        ):
            connection.request("GET", f"/{REPO}/resolve/main/config.json", headers={"Range": asked})
            kept, answer = connection.sock, connection.getresponse()
            assert answer.status == status
            assert answer.read() == content or content is None
        connection.request("HEAD", f"/{REPO}/resolve/main/config.json")
        answer = connection.getresponse()
        assert (answer.getheader("Content-Length"), answer.read()) == (str(len(CONFIG)), b"")
        assert connection.sock is kept


def test_no_name_is_ever_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the start nor at a request does the hub ask for its own or the client's name."""

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"looked up {arguments}")

    for name in ("getfqdn", "gethostbyaddr", "getnameinfo"):
        monkeypatch.setattr(socket, name, refuse)
    with LoopbackHub() as hub, closing(connect(hub)) as connection:
        connection.request("GET", "/api/whoami-v2")
        assert connection.getresponse().status == 401


def test_closing_leaves_nothing_behind() -> None:
    """Threads end and the port is free, also while a client holds a connection and another is stalled."""
    before = set(threading.enumerate())
    hub = LoopbackHub()
    with closing(connect(hub)) as waiting:
        fault = hub.stall()
        waiting.request("GET", "/api/whoami-v2")
        with socket.create_connection(("127.0.0.1", waiting.port)):
            while not fault.hits:
                time.sleep(0.001)
            hub.close()
        assert set(threading.enumerate()) == before
        with pytest.raises(ConnectionResetError):
            waiting.getresponse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", waiting.port))


def test_hub_and_client_in_processes_of_their_own(tmp_path: Path) -> None:
    """``python -m tests.rigs.hub`` prints its URL; ``environment()`` is all that a child client needs."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_bytes(CONFIG)
    command = [sys.executable, "-m", "tests.rigs.hub", "--repo", f"{REPO}={tmp_path / 'model'}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as served:
        url = served.stdout.readline().strip()
        with LoopbackHub() as here:
            settings = {**os.environ, **here.environment(home=tmp_path / "home"), "HF_ENDPOINT": url}
        script = (
            f"import huggingface_hub as h; print(open(h.hf_hub_download({REPO!r}, 'config.json')).read())"
        )
        run = subprocess.run([sys.executable, "-c", script], env=settings, capture_output=True, check=True)
        served.send_signal(signal.SIGTERM)
        assert served.wait(timeout=5) == 0
    assert CONFIG.strip() in run.stdout
    assert run.stderr == b""
