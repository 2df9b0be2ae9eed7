"""Everything that can go wrong between here and the Hub: the end, the message, and the history afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import HfApi

from tests.measurements import GIB
from tests.rigs.hub import LoopbackHub
from tests.rigs.publishing import COMMITS, README, REPO, STRANGER, Publisher, text_of
from zenit_hub.maintain.publish.hub import Timeouts
from zenit_hub.maintain.publish.outcomes import Published, PublishingFailed, Trouble
from zenit_hub.maintain.publish.retry import Pace

pytest_plugins = ("tests.rigs.publishing_fixtures",)

INFO = f"/api/models/{REPO}/revision/*"
PREUPLOAD = f"/api/models/{REPO}/preupload/*"
AUTH = f"/api/models/{REPO}/auth-check*"


def assert_published_once(publisher: Publisher, outcome: object, tries: int) -> None:
    """Ours is in the history once, whole."""
    assert isinstance(outcome, Published)
    assert outcome.tries == tries
    assert publisher.figures()["m256k"] == 24 * GIB
    assert len(publisher.ours()) == 1
    assert publisher.hub.read(REPO, outcome.files[-1])


def assert_untouched(publisher: Publisher) -> None:
    """No commit of ours, and nobody else's lost."""
    assert publisher.ours() == []
    assert "m256k" not in publisher.figures()


# --- 412: somebody else was first


def test_another_file_was_changed(publisher: Publisher) -> None:
    """C5-02 (a): read anew, put on top, landed; a head that lags behind counts as tries."""
    hub = publisher.hub

    def meanwhile() -> None:
        publisher.somebody_writes("README.md", README.replace(b"The end.", b"The real end."))
        hub.stale_info(REPO, times=2, commit=publisher.first)

    hub.fail("POST", COMMITS, meanwhile=meanwhile)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=4)
    assert b"The real end." in hub.read(REPO, "README.md")
    assert len(set(publisher.clock.slept_s)) == 3
    assert [note.split(". ")[0] for note in publisher.person.said] == [
        "The Hub: the branch moved meanwhile (412): A commit has happened since"
    ] * 3
    assert not [note for note in publisher.person.said if ".." in note]
    assert publisher.person.said[-1].endswith("then try 4 of 6.")


def test_the_card_outside_of_our_block_was_changed_and_so_was_the_config(publisher: Publisher) -> None:
    """Somebody's change outside of the section stays, byte for byte."""

    def meanwhile() -> None:
        config = publisher.config()
        config["torch_dtype"] = "bfloat16"
        publisher.somebody_writes("config.json", text_of(config))

    publisher.hub.fail("POST", COMMITS, meanwhile=meanwhile)
    assert_published_once(publisher, publisher.publish(), tries=2)
    assert publisher.config()["torch_dtype"] == "bfloat16"


def test_another_profiles_figure_was_published(publisher: Publisher) -> None:
    """C5-02 (b): both figures are there in the end; only a key that we write is a conflict."""
    publisher.hub.fail("POST", COMMITS, meanwhile=lambda: publisher.somebody_publishes("s32k", 11))
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert publisher.figures() == {"s32k": 11 * GIB, "m256k": 24 * GIB}
    card = publisher.hub.read(REPO, "README.md").decode()
    assert f"- s32k: {11 * GIB}\n- m256k: {24 * GIB}\n" in card


def test_a_larger_figure_of_another_card_is_no_conflict(publisher: Publisher) -> None:
    """What we would write is what stands there: both entries are kept."""
    publisher.hub.fail("POST", COMMITS, meanwhile=lambda: publisher.somebody_publishes("m256k", 25))
    outcome = publisher.publish()

    assert isinstance(outcome, Published)
    assert publisher.figures() == {"m256k": 25 * GIB}
    entries = publisher.config()["lomonosov_serving_profiles"]["profiles"]["m256k"]["measurements"]
    assert [entry["requires_free_bytes"] for entry in entries] == [25 * GIB, 24 * GIB]


def test_the_same_figure_was_published_by_somebody_else(publisher: Publisher) -> None:
    """A key that we write: stopped, both versions shown, nothing of theirs lost, the next command named."""
    publisher.hub.fail("POST", COMMITS, meanwhile=lambda: publisher.somebody_publishes("m256k", 20))
    with pytest.raises(PublishingFailed) as caught:
        publisher.publish(command="zenit-hub publish m.json --repo zenit/altay")

    assert (caught.value.trouble, caught.value.tries) == (Trouble.STALE_PARENT, 2)
    assert f"was not there, is {20 * GIB} now, yours is {24 * GIB}" in str(caught.value)
    assert str(caught.value).endswith("zenit-hub publish m.json --repo zenit/altay --force")
    assert publisher.figures() == {"m256k": 20 * GIB}
    assert publisher.ours() == []


def test_force_puts_ours_in_its_place(publisher: Publisher) -> None:
    """``--force``: said with both versions, then published on top of it."""
    publisher.hub.fail("POST", COMMITS, meanwhile=lambda: publisher.somebody_publishes("m256k", 20))
    outcome = publisher.publish(force=True)

    assert_published_once(publisher, outcome, tries=2)
    (warning,) = publisher.person.warnings
    assert f"is {20 * GIB} now, yours is {24 * GIB}" in warning


def test_the_profile_itself_was_changed_meanwhile(publisher: Publisher) -> None:
    """What was measured is not what would be served: refused, also with ``--force``."""

    def meanwhile() -> None:
        config = publisher.config()
        config["lomonosov_serving_profiles"]["profiles"]["m256k"]["max_num_seqs"] = 2
        publisher.somebody_writes("config.json", text_of(config))

    publisher.hub.fail("POST", COMMITS, meanwhile=meanwhile)
    with pytest.raises(Exception, match="max_num_seqs was 1, is 2"):
        publisher.publish(force=True)
    assert_untouched(publisher)


def test_somebody_is_always_first(publisher: Publisher) -> None:
    """Six tries, waits that grow, then the end: nothing lost, and what to type."""
    publisher.hub.fail("POST", COMMITS, times=None, meanwhile=publisher.somebody_writes_on)
    with pytest.raises(
        PublishingFailed, match=r"6 tries did not do it.*again later.*files are kept"
    ) as caught:
        publisher.publish()

    assert caught.value.trouble is Trouble.STALE_PARENT
    assert publisher.hub.count("POST", COMMITS) == 6
    assert publisher.clock.slept_s == sorted(publisher.clock.slept_s)
    assert_untouched(publisher)


# --- 409, 429


def test_another_write_is_under_way(publisher: Publisher) -> None:
    """409 with the head where it was: backed off and sent again."""
    publisher.hub.fail("POST", COMMITS, status=409, times=2)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=3)
    assert publisher.hub.repository(REPO).resolve("main").parent == publisher.first


@pytest.mark.parametrize(
    ("path", "headers", "seconds", "said"),
    [
        (COMMITS, {"retry_after_s": 271}, 271.5, "Waiting 4 min 32 s, then try 2 of 6."),
        (COMMITS, {"rate_limit_reset_s": 55}, 55.5, "Waiting 56 s, then try 2 of 6."),
        (COMMITS, {"retry_after_s": 3600}, 300.5, "Waiting 5 min (it asks for 60 min), then try 2 of 6."),
        (PREUPLOAD, {"retry_after_s": 271}, 271.5, "Waiting 4 min 32 s, then try 2 of 6."),
        (INFO, {"rate_limit_reset_s": 55}, 55.5, "Waiting 56 s, then try 2 of 6."),
        (AUTH, {"retry_after_s": 7}, 7.5, "Waiting 7.5 s, then try 2 of 6."),
    ],
)
def test_too_many_requests(
    publisher: Publisher, path: str, headers: dict[str, int], seconds: float, said: str
) -> None:
    """429 in both forms, wherever it comes: waited for as long as it says, capped, and said."""
    publisher.hub.fail(path=path, **headers)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert publisher.clock.slept_s == [pytest.approx(seconds)]
    (note,) = publisher.person.said
    assert note.startswith("The Hub: it has been asked too often (429)")
    assert note.endswith(said)


def test_too_many_requests_for_too_long(publisher: Publisher) -> None:
    """A wait beyond the deadline is not begun: a non-zero end that says why, and that the files are kept."""
    publisher.pace = Pace(deadline_s=200.0)
    publisher.hub.fail("POST", COMMITS, retry_after_s=271)
    with pytest.raises(PublishingFailed, match=r"4 min 32 s to wait.*3 min 20 s.*files are kept") as caught:
        publisher.publish()

    assert caught.value.trouble is Trouble.RATE_LIMITED
    assert publisher.clock.slept_s == []
    assert_untouched(publisher)


# --- answers that are lost


LOST: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "502": {"status": 502},
    "408": {"status": 408},
    "dropped": {"drop": True},
    "stalled": {"stall_s": 1.0, "drop": True},
}


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_the_answer_is_lost(publisher: Publisher, fault: dict[str, Any], after_effect: bool) -> None:
    """C5-03: whether it landed is looked up; one commit either way, and sent again only if it did not."""
    if "stall_s" in fault:
        publisher.timeouts = Timeouts(read_s=5, send_s=0.4, total_s=20)
    publisher.hub.fail("POST", COMMITS, after_effect=after_effect, **fault)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert publisher.hub.count("POST", COMMITS) == (1 if after_effect else 2)
    assert isinstance(outcome, Published)
    assert outcome.config_changed
    assert outcome.commit == publisher.hub.head(REPO)
    assert ("It is there: only the Hub's answer was lost." in publisher.person.said) is after_effect


def test_the_answer_is_lost_and_the_info_lags_behind(publisher: Publisher) -> None:
    """The old head is taken as parent; the client sees that the branch holds it all: still one commit."""
    hub = publisher.hub
    hub.fail(
        "POST",
        COMMITS,
        status=500,
        after_effect=True,
        meanwhile=lambda: hub.stale_info(REPO, times=1, commit=publisher.first),
    )
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert hub.count("POST", COMMITS) == 1


def test_the_answer_is_lost_and_somebody_goes_on(publisher: Publisher) -> None:
    """Ours landed, another's is on top of it when we look: seen all the same."""
    hub = publisher.hub
    hub.fail("POST", COMMITS, status=500, after_effect=True)
    hub.fail("GET", INFO, skip=1, meanwhile=lambda: publisher.somebody_publishes("s32k", 11))
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert publisher.figures() == {"s32k": 11 * GIB, "m256k": 24 * GIB}


def test_a_commit_that_lands_late_lands_once(publisher: Publisher, hub: LoopbackHub) -> None:
    """Given up here and carried out there afterwards: the parent keeps the second one out."""
    publisher.timeouts = Timeouts(read_s=5, send_s=0.4, total_s=20)
    hub.fail("POST", COMMITS, stall_s=0.6)
    outcome = publisher.publish()
    hub.heal()
    again = publisher.publish()

    assert isinstance(outcome, Published)
    assert again.outcome == "nothing"
    assert len(publisher.ours()) == 1


def test_the_hub_is_down(publisher: Publisher) -> None:
    """Six tries from the first request on; the end says that nothing is known of what was sent."""
    publisher.hub.down()
    with pytest.raises(PublishingFailed, match=r"6 tries did not do it.*\(503\).*files are kept") as caught:
        publisher.publish()
    publisher.hub.heal()

    assert caught.value.trouble is Trouble.UNKNOWN
    assert len(publisher.hub.requests) == 6
    assert_untouched(publisher)


def test_the_hub_does_not_answer(publisher: Publisher) -> None:
    """A stall ends with the timeout, every time; nothing hangs."""
    publisher.timeouts = Timeouts(read_s=0.05, send_s=0.05, total_s=5)
    publisher.hub.stall()
    with pytest.raises(PublishingFailed, match=r"there was no answer.*ReadTimeout"):
        publisher.publish()
    publisher.hub.heal()
    assert_untouched(publisher)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        (AUTH, LOST["500"]),
        (INFO, LOST["dropped"]),
        ("*/paths-info/*", LOST["500"]),
        ("*/config.json", LOST["500"]),
        ("*/README.md", LOST["dropped"]),
        ("/api/validate-yaml", LOST["500"]),
        (PREUPLOAD, LOST["500"]),
        (PREUPLOAD, LOST["dropped"]),
    ],
)
def test_any_other_request_fails_once(publisher: Publisher, path: str, fault: dict[str, Any]) -> None:
    """Another try, one commit; the client's own silent repetitions are not what does it."""
    publisher.hub.fail(path=path, **fault)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert len(publisher.clock.slept_s) == 1


def test_the_commit_cannot_be_read_back(publisher: Publisher) -> None:
    """It was acknowledged: that is success, with a warning that it could not be checked."""
    publisher.hub.fail("POST", "*/paths-info/*", skip=1, times=None, status=503)
    outcome = publisher.publish()

    assert isinstance(outcome, Published)
    assert outcome.commit == publisher.hub.head(REPO)
    assert len(publisher.ours()) == 1
    assert "could not be seen" in publisher.person.warnings[-1]


def test_the_profile_changes_before_it_is_read_back(publisher: Publisher) -> None:
    """The commit that the Hub took is looked at, not the branch: it is published, whatever came after it."""

    def meanwhile() -> None:
        config = publisher.config()
        config["lomonosov_serving_profiles"]["profiles"]["m256k"]["max_num_seqs"] = 2
        publisher.somebody_writes("config.json", text_of(config))

    publisher.hub.fail("POST", "*/paths-info/*", skip=1, status=503, meanwhile=meanwhile)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert isinstance(outcome, Published)
    assert publisher.hub.repository(REPO).resolve("main").parent == outcome.commit


def test_reading_back_fails_once(publisher: Publisher) -> None:
    """Read at the next try; nothing is sent again."""
    publisher.hub.fail("POST", "*/paths-info/*", skip=1, status=503)
    outcome = publisher.publish()

    assert_published_once(publisher, outcome, tries=2)
    assert publisher.hub.count("POST", COMMITS) == 1


# --- what another try does not mend


def refused(publisher: Publisher, **asked: Any) -> PublishingFailed:
    """One try, no wait, no commit."""
    with pytest.raises(PublishingFailed) as caught:
        publisher.publish(**asked)
    assert caught.value.tries == 1
    assert publisher.clock.slept_s == []
    assert_untouched(publisher)
    return caught.value


def test_a_token_that_nobody_has(publisher: Publisher) -> None:
    """401: its own message, and how to log in; the token is in no line."""
    publisher.token = "hf_wrong"
    error = refused(publisher)

    assert error.trouble is Trouble.UNAUTHORIZED
    assert "does not accept the token (401)" in error.what
    assert "hf auth login" in error.next_step
    assert "hf_wrong" not in str(error)
    assert len([one for one in publisher.hub.requests if REPO in one.path]) == 1


@pytest.mark.parametrize("create_pr", [False, True])
def test_no_token_at_all(publisher: Publisher, create_pr: bool) -> None:
    """401 with the words that fit."""
    publisher.token = None
    error = refused(publisher, create_pr=create_pr)

    assert error.trouble is Trouble.UNAUTHORIZED
    assert "there is no token" in error.what


def test_a_repo_of_somebody_else(publisher: Publisher) -> None:
    """C5-04: 403 before anything is read; the message says that a pull request works."""
    publisher.token = STRANGER
    error = refused(publisher, command="zenit-hub publish m.json --repo zenit/altay")

    assert error.trouble is Trouble.FORBIDDEN
    assert "may not write to zenit/altay (403)" in error.what
    assert error.next_step.endswith("zenit-hub publish m.json --repo zenit/altay --create-pr")
    assert len([one for one in publisher.hub.requests if REPO in one.path]) == 1


def test_a_token_that_may_only_read(publisher: Publisher) -> None:
    """403 too, and with ``--create-pr`` once more: a read role opens none."""
    publisher.token = publisher.hub.account("zenit", role="read")
    assert refused(publisher).trouble is Trouble.FORBIDDEN
    error = refused(publisher, create_pr=True)
    assert "may not open pull requests" in error.what
    assert "only has the read role" in error.what


def test_a_gated_repo(publisher: Publisher) -> None:
    """Where to ask for access."""
    publisher.hub.repository(REPO).gated = "manual"
    publisher.token = STRANGER
    error = refused(publisher, create_pr=True)

    assert error.trouble is Trouble.GATED
    assert "access to zenit/altay is restricted" in error.what
    assert f"{publisher.hub.url}/{REPO}" in error.next_step


def test_a_revision_that_is_not_there(publisher: Publisher) -> None:
    """Nothing goes to main instead."""
    error = refused(publisher, branch="nowhere")

    assert error.trouble is Trouble.NO_REVISION
    assert "has no branch nowhere" in error.what


def test_a_tag_is_no_branch(publisher: Publisher) -> None:
    """The Hub takes no commit there."""
    publisher.hub.tag(REPO, "v1")
    assert refused(publisher, branch="v1").trouble is Trouble.NO_REVISION


def test_somebody_elses_pull_request(publisher: Publisher) -> None:
    """``--revision refs/pr/1``: only its author and who may write; the advice is a command that works."""
    publisher.hub.propose(REPO, {"a": b"a"}, title="t", author="somebody")
    publisher.token = STRANGER
    error = refused(publisher, branch="refs/pr/1")

    assert error.trouble is Trouble.FORBIDDEN
    assert "may not write to refs/pr/1" in error.what
    assert "--create-pr, without --revision" in error.next_step


def test_a_repo_that_is_not_there(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not made by us; how to make it is said."""
    publisher.hub.fail(path=AUTH, meanwhile=lambda: rename(publisher.hub))
    error = refused_without_look(publisher)

    assert error.trouble is Trouble.NO_REPO
    assert "hf repos create zenit/altay" in error.next_step
    assert publisher.hub.count("POST", "/api/repos/create") == 0


def rename(hub: LoopbackHub) -> None:
    hub._world.repos["zenit/other"] = hub._world.repos.pop(REPO)


def refused_without_look(publisher: Publisher) -> PublishingFailed:
    with pytest.raises(PublishingFailed) as caught:
        publisher.publish()
    return caught.value


def test_the_cards_metadata_are_refused(publisher: Publisher) -> None:
    """Its YAML is not ours to mend: said, nothing sent."""
    broken = README.replace(b"license: apache-2.0", b"a: [")
    publisher.hub.commit(REPO, {"README.md": broken})
    error = refused(publisher)

    assert error.trouble is Trouble.BAD_METADATA
    assert "invalid yaml" in error.what
    assert publisher.hub.read(REPO, "README.md") == broken


@pytest.mark.parametrize("status", [400, 413, 422])
def test_the_request_is_refused(publisher: Publisher, status: int) -> None:
    """The Hub's own words, and how to look at what was sent."""
    publisher.hub.fail("POST", COMMITS, status=status)
    error = refused(publisher, command="zenit-hub publish m.json --repo zenit/altay")

    assert error.trouble is Trouble.REFUSED
    assert f"the Hub refuses the request ({status}) (the Hub: told to fail)" in error.what
    assert error.next_step.endswith("zenit-hub publish m.json --repo zenit/altay --dry-run")


@pytest.mark.parametrize("path", [PREUPLOAD, COMMITS])
@pytest.mark.parametrize(("status", "trouble"), [(401, Trouble.UNAUTHORIZED), (403, Trouble.FORBIDDEN)])
def test_a_right_that_is_lost_on_the_way(
    publisher: Publisher, path: str, status: int, trouble: Trouble
) -> None:
    """The same messages when it comes later, as with clients that cannot ask about writing."""
    publisher.hub.fail("POST", path, status=status)
    assert refused(publisher).trouble is trouble


def test_an_older_client_asks_for_a_right_to_read(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``auth_check`` of huggingface_hub 1.0 has no ``write``: the commit tells instead."""
    whole: Callable[..., None] = HfApi.auth_check

    def auth_check(self: HfApi, repo_id: str, *, token: str | None = None) -> None:
        whole(self, repo_id, token=token)

    monkeypatch.setattr(HfApi, "auth_check", auth_check)
    publisher.token = STRANGER
    assert refused(publisher).trouble is Trouble.FORBIDDEN
    assert publisher.hub.count("GET", f"/api/models/{REPO}/auth-check") == 1
