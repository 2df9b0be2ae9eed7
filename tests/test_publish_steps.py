"""A publication where nothing goes wrong: what is written, what is not, what is only shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.measurements import CARD, GIB
from tests.rigs.hub import LoopbackHub, blob_id
from tests.rigs.publishing import (
    COMMITS,
    OWNER,
    README,
    REPO,
    Publisher,
    Somebody,
    config_of,
    measured,
    plain_block,
    receipt_of,
    text_of,
)
from zenit_hub.errors import PublicationError
from zenit_hub.maintain.measurement import to_json
from zenit_hub.maintain.publish.advice import Asked
from zenit_hub.maintain.publish.content import load
from zenit_hub.maintain.publish.hub import Hub
from zenit_hub.maintain.publish.outcomes import (
    Declined,
    Nothing,
    Previewed,
    Publication,
    Published,
    PublishingFailed,
)
from zenit_hub.maintain.publish.publish import Waits, is_commit, publish
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END

pytest_plugins = ("tests.rigs.publishing_fixtures",)


def test_one_commit_holds_config_card_and_receipt(publisher: Publisher) -> None:
    """The figure in the section, the block between the markers, the measurement byte for byte; nothing else."""
    hub, measurement = publisher.hub, measured("m256k")
    outcome = publisher.publish(measurement)

    receipt = receipt_of(measurement)
    (path,) = receipt.files
    assert isinstance(outcome, Published)
    assert outcome.commit == hub.head(REPO)
    assert outcome.url == f"{hub.url}/{REPO}/commit/{outcome.commit}"
    assert (outcome.files, outcome.tries, outcome.config_changed) == (
        ("config.json", "README.md", path),
        1,
        True,
    )
    assert hub.repository(REPO).resolve("main").parent == publisher.first
    assert publisher.figures() == {"m256k": 24 * GIB}
    assert hub.read(REPO, path) == receipt.files[path]
    assert path == f"serving_profiles/m256k/nvidia-geforce-rtx-5090-{_digest(receipt.files[path])}.json"
    assert f"- m256k: {24 * GIB}\n".encode() in hub.read(REPO, "README.md")
    changed = hub.repository(REPO).resolve("main").files.keys() - {"config.json", "README.md", path}
    assert changed == {"model.safetensors"}
    assert publisher.person.notes == [f"Reading {REPO}, main.", "Sending 3 files."]
    assert publisher.person.warnings == []


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


STYLES = {
    "2 spaces": lambda config: json.dumps(config, indent=2) + "\n",
    "4 spaces": lambda config: json.dumps(config, indent=4) + "\n",
    "tabs": lambda config: json.dumps(config, indent="\t") + "\n",
    "crlf": lambda config: json.dumps(config, indent=2).replace("\n", "\r\n") + "\r\n",
    "minified": lambda config: json.dumps(config, separators=(",", ":")),
    "one line": json.dumps,
    "no newline at the end": lambda config: json.dumps(config, indent=2),
    "escapes": lambda config: json.dumps(config, indent=2).replace("Altay", "\\u0410ltay"),
    "not ascii": lambda config: json.dumps({**config, "_name": "Алтай ⛰"}, indent=2, ensure_ascii=False),
    "keys unsorted, odd numbers": lambda config: json.dumps(
        {"z": 1.0, "text_config": {"b": None, "a": 1e-06}, **config, "a": -0.0}, indent=2
    ),
}


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_the_config_changes_in_one_place(publisher: Publisher, style: Callable[[object], str]) -> None:
    """Whatever its style: our lines are put in, and every byte around them is the one that was there."""
    before = style(config_of("s32k", "m256k")).encode()
    publisher.hub.commit(REPO, {"config.json": before})
    publisher.publish()
    after = publisher.hub.read(REPO, "config.json")

    same = next(at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    assert after.endswith(before[same:])
    assert publisher.figures() == {"m256k": 24 * GIB}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_card_changes_between_its_markers(publisher: Publisher, newline: str) -> None:
    """C5-01: a header with the license first, a folded string and a comment stays as it is, line ends too."""
    header = "---\nlicense: apache-2.0\nversion: 1.10\n# a comment\nsummary: >-\n  long\n  and folded\n---\n"
    card = f"{header}# Altay\n{MARK_BEGIN}\nold\n{MARK_END}\nno newline at the end".replace(
        "\n", newline
    ).encode()
    publisher.hub.commit(REPO, {"README.md": card})
    publisher.publish()
    after = publisher.hub.read(REPO, "README.md")

    begin = card.index(f"{MARK_BEGIN}{newline}".encode()) + len(f"{MARK_BEGIN}{newline}")
    end = card.index(MARK_END.encode())
    assert card[begin:end] == f"old{newline}".encode()
    assert after.startswith(card[:begin])
    assert after.endswith(card[end:])
    assert after.count(b"\n") == after.count(newline.encode())


def test_twelve_profiles_are_one_commit(publisher: Publisher) -> None:
    """C5-05: config.json, README.md and twelve receipts at once; a second time there is nothing to publish."""
    names = tuple(f"p{number}" for number in range(12))
    publisher.hub.commit(REPO, {"config.json": text_of(config_of(*names))})
    run = [measured(name, 20 + number) for number, name in enumerate(names)]

    outcome = publisher.publish(*run)

    assert isinstance(outcome, Published)
    assert len(outcome.files) == 14
    assert publisher.figures() == {name: (20 + number) * GIB for number, name in enumerate(names)}
    assert publisher.ours() == [f"Measured: 12 profiles on {CARD}"]
    again = publisher.publish(*run)
    assert again == Nothing(outcome.commit, outcome.url, 1)
    assert publisher.hub.count("POST", COMMITS) == 1


def test_other_writers_files_stay(publisher: Publisher) -> None:
    """What the repo holds beside ours is the same afterwards."""
    publisher.somebody_writes("notes.md", b"notes\r\n")
    before = dict(publisher.hub.repository(REPO).resolve("main").files)
    publisher.publish()
    after = publisher.hub.repository(REPO).resolve("main").files

    assert {path: after[path] for path in before if path not in ("config.json", "README.md")} == {
        path: file for path, file in before.items() if path not in ("config.json", "README.md")
    }


def test_who_may_not_write_is_asked_first(publisher: Publisher) -> None:
    """Access is the first request, then the head; files come by its commit and never by the branch."""
    publisher.publish()
    paths = [request.path for request in publisher.hub.requests]

    assert paths[0] == f"/api/models/{REPO}/auth-check/write"
    assert paths[1] == f"/api/models/{REPO}/revision/main"
    assert all(f"/resolve/{publisher.first}/" in path for path in paths if "/resolve/" in path)
    assert publisher.hub.count("POST", "/api/repos/create") == 0


def test_a_branch_is_published_to(publisher: Publisher) -> None:
    """``--revision``: that branch moves, main does not."""
    publisher.hub.branch(REPO, "work/next")
    outcome = publisher.publish(branch="work/next")

    assert isinstance(outcome, Published)
    assert publisher.hub.head(REPO, "work/next") == outcome.commit
    assert publisher.hub.head(REPO) == publisher.first


def test_only_what_differs_is_sent(publisher: Publisher) -> None:
    """A card that somebody changed by hand is made anew; config and receipt are left out."""
    publisher.publish()
    publisher.hub.commit(REPO, {"README.md": README})
    outcome = publisher.publish()

    assert isinstance(outcome, Published)
    assert outcome.files == ("README.md",)
    assert not outcome.config_changed


def test_a_newer_run_replaces_the_older_one(publisher: Publisher) -> None:
    """The entry and the figure are the new one's; the older receipt stays, and nothing names it."""
    publisher.publish(measured("m256k", 24))
    publisher.publish(measured("m256k", 22))

    assert publisher.figures() == {"m256k": 22 * GIB}
    assert len(publisher.config()["lomonosov_serving_profiles"]["profiles"]["m256k"]["measurements"]) == 1
    assert len(publisher.ours()) == 2


def test_a_dry_run_shows_the_change_and_the_head(publisher: Publisher) -> None:
    """A unified diff of the text files, new ones by their size; nobody is asked for a right to write."""
    publisher.token = None
    outcome = publisher.publish(dry_run=True)

    assert isinstance(outcome, Previewed)
    assert outcome.commit == publisher.first
    lines = outcome.diff.splitlines()
    assert "--- a/config.json" in lines
    assert f'+        "requires_free_bytes": {24 * GIB},' in lines
    assert "-old" in lines
    assert any(line.startswith("+++ b/serving_profiles/m256k/") for line in lines)
    assert publisher.hub.head(REPO) == publisher.first
    assert [request.method for request in publisher.hub.requests if request.authorized] == []
    assert publisher.person.proposals == []


def test_a_dry_run_of_a_commit(publisher: Publisher) -> None:
    """Also of one that is not the head any more."""
    publisher.publish()
    outcome = publisher.publish(dry_run=True, branch=publisher.first)

    assert isinstance(outcome, Previewed)
    assert outcome.commit == publisher.first


def test_a_dry_run_of_what_is_there_is_nothing(publisher: Publisher) -> None:
    """The same answer as without it."""
    publisher.publish()
    assert isinstance(publisher.publish(dry_run=True), Nothing)


def test_who_says_no_sends_nothing(publisher: Publisher) -> None:
    """The question names the files and says what changes."""
    publisher.person = Somebody(answer=False)
    outcome = publisher.publish()

    assert isinstance(outcome, Declined)
    (proposal,) = publisher.person.proposals
    assert proposal.files[:2] == ("config.json", "README.md")
    assert proposal.lines == (
        "m256k on NVIDIA GeForce RTX 5090: 24.00 GiB (vLLM 0.32.0)",
        f"m256k: requires_free_bytes is now {24 * GIB}",
    )
    assert publisher.hub.head(REPO) == publisher.first


def test_what_may_not_be_published_stops_before_anything_is_sent(publisher: Publisher) -> None:
    """All that speaks against it at once; no commit."""
    contaminated = measured("m256k", verdict="contaminated", requires_free_bytes=None)
    absent = measured("l1m")
    with pytest.raises(PublicationError, match=r"quiet device.*declares no such profile"):
        publisher.publish(contaminated, absent)
    assert publisher.hub.count("POST", COMMITS) == 0


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"README.md": b"# Altay\n"}, "has no markers"),
        ({"README.md": None}, "there is no README.md"),
        ({"config.json": None}, "has no config.json"),
        ({"config.json": b'\xef\xbb\xbf{"a": 1}'}, "byte order mark"),
        ({"config.json": b'{"a": 1, "a": 2}'}, "twice|more than once"),
        ({"config.json": b'{"a": NaN}'}, "NaN"),
        ({"config.json": b"{}"}, "carries no serving profiles"),
    ],
)
def test_a_repo_that_cannot_take_it(publisher: Publisher, files: dict[str, bytes | None], why: str) -> None:
    """Refused with the reason; nothing is added by itself."""
    publisher.hub.commit(REPO, files)
    with pytest.raises(PublicationError, match=why):
        publisher.publish()
    assert publisher.hub.count("POST", COMMITS) == 0


def test_markers_are_added_when_asked_for(publisher: Publisher) -> None:
    """``--init-card``, also where there is no card; what the Hub says of a card without a header is passed on."""
    publisher.hub.commit(REPO, {"README.md": None})
    outcome = publisher.publish(settings={"init_card": True})

    assert isinstance(outcome, Published)
    assert b"- m256k: 25769803776" in publisher.hub.read(REPO, "README.md")
    (warning,) = publisher.person.warnings
    assert "empty or missing yaml metadata" in warning


@pytest.mark.parametrize("path", ["config.json", "README.md"])
def test_a_file_in_lfs_is_refused(publisher: Publisher, path: str) -> None:
    """Nothing of it is changed in place; the download would have given the content and hidden it."""
    publisher.hub.repository(REPO).lfs_paths = ("*.safetensors", path)
    publisher.hub.commit(REPO, {path: publisher.hub.read(REPO, path)})
    with pytest.raises(PublicationError, match=f"{path} is kept in Git LFS"):
        publisher.publish()


def test_a_file_that_is_too_large_is_not_downloaded(publisher: Publisher) -> None:
    """The size is asked first."""
    publisher.hub.commit(REPO, {"README.md": b" " * (16 * 2**20 + 1)})
    with pytest.raises(PublicationError, match=r"README\.md is too large"):
        publisher.publish()
    assert publisher.hub.count("GET", "*README.md") == 0


def test_a_spoiled_cache_is_read_anew(publisher: Publisher, tmp_path: Path) -> None:
    """A file of the cache that is not what the commit has does not become the base of a change."""
    publisher.publish(dry_run=True)
    blob = (
        tmp_path / "cache" / "models--zenit--altay" / "blobs" / blob_id(text_of(config_of("s32k", "m256k")))
    )
    blob.write_bytes(b'{"spoiled": true}')

    assert isinstance(publisher.publish(), Published)
    assert "spoiled" not in publisher.config()


def test_a_file_that_is_left_out_by_the_hub_is_an_error(publisher: Publisher, hub: LoopbackHub) -> None:
    """The commit is read back: what it does not hold is named."""

    def lose_the_receipt() -> None:
        repo = hub.repository(REPO)
        commit = repo.resolve("main")
        lost = [path for path in commit.files if path.startswith("serving_profiles/")]
        object.__setattr__(commit, "files", {p: f for p, f in commit.files.items() if p not in lost})

    hub.fail("POST", "*/paths-info/*", skip=1, meanwhile=lose_the_receipt)
    with pytest.raises(PublishingFailed, match=r"does not hold what was sent: serving_profiles.*gitignore"):
        publisher.publish()


def test_offline_nothing_is_published(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused at once, without a request; the message says what can be done."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for asked in ({}, {"create_pr": True}, {"dry_run": True}):
        with pytest.raises(PublishingFailed, match="HF_HUB_OFFLINE is set"):
            publisher.publish(**asked)
    assert publisher.hub.requests == []


def test_offline_a_commit_in_the_cache_is_shown(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dry run of a pinned commit; that the weights were not compared is said."""
    shown = publisher.publish(dry_run=True)
    asked_online = len(publisher.hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    outcome = publisher.publish(dry_run=True, branch=publisher.first)

    assert isinstance(outcome, Previewed)
    assert isinstance(shown, Previewed)
    assert (outcome.commit, outcome.diff) == (shown.commit, shown.diff)
    assert "weights" in publisher.person.warnings[0]
    assert len(publisher.hub.requests) == asked_online


def test_offline_a_commit_that_is_not_in_the_cache(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says so."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        PublicationError, match=r"config\.json of zenit/altay at .* is not in this machine's cache"
    ):
        publisher.publish(dry_run=True, branch=publisher.first)


def test_a_picture_that_the_repo_keeps_in_lfs(publisher: Publisher, tmp_path: Path) -> None:
    """Uploaded, committed and read back by its SHA-256; a second time it is there already."""
    publisher.hub.repository(REPO).lfs_paths = ("*.safetensors", "*.png")
    file = tmp_path / "m256k.json"
    file.write_text(to_json(measured("m256k")))
    file.with_suffix(".png").write_bytes(b"\x89PNG" + bytes(range(256)))
    content = load([file], REPO, block=plain_block)

    def publish_it() -> Publication:
        hub = Hub(REPO, OWNER, endpoint=publisher.hub.url)
        return publish(hub, content, Asked(), publisher.person, Waits(publisher.pace, publisher.clock))

    outcome = publish_it()
    assert isinstance(outcome, Published)
    assert outcome.files[-1].endswith(".png")
    assert publisher.hub.repository(REPO).resolve("main").files[outcome.files[-1]].is_lfs
    assert isinstance(publish_it(), Nothing)


def test_two_cards_of_one_profile(publisher: Publisher) -> None:
    """In one commit: the figure is the larger one."""
    outcome = publisher.publish(measured("m256k", 23), measured("m256k", 24, device="NVIDIA L40S"))

    assert isinstance(outcome, Published)
    assert publisher.figures() == {"m256k": 24 * GIB}
    assert publisher.ours() == ["Measured: m256k on 2 cards"]


def test_the_message_of_the_commit_names_figures_and_tool(publisher: Publisher) -> None:
    """For those who read the history."""
    publisher.publish()
    commit = publisher.hub.repository(REPO).resolve("main")

    assert commit.summary == f"Measured: m256k on {CARD}"
    assert f"- m256k: {24 * GIB} bytes free on {CARD}, vLLM 0.32.0" in commit.description
    assert "zenit-hub 0.1.0" in commit.description


def test_what_a_whole_commit_id_is() -> None:
    """Forty digits of hexadecimal; a branch of that length is none."""
    assert is_commit("0123456789abcdef" * 2 + "01234567")
    assert not is_commit("main")
    assert not is_commit("z" * 40)


def test_a_repo_that_was_renamed_is_called_by_its_name(publisher: Publisher) -> None:
    """The Hub finds it by the old one; the card would tell people to type that."""
    publisher.hub.rename(REPO, "zenit/other")
    with pytest.raises(PublicationError, match=r"zenit/altay is called zenit/other by now. Type zenit/other"):
        publisher.publish()
    assert publisher.ours() == []
