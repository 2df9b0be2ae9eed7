"""``card`` of a Hub id: the real client and the loopback hub, each call in a process of its own."""

from __future__ import annotations

import json
from typing import Any

from tests.measurements import a_measurement
from tests.rigs.hub import LoopbackHub
from tests.rigs.reading import Reader, cli
from tests.stage import config, needs, unrated
from zenit_hub.maintain.card.render import render_block
from zenit_hub.maintain.measurement import to_json
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END, with_block

pytest_plugins = ("tests.rigs.reading_fixtures",)

RECEIPT = "wide/nvidia-geforce-rtx-5090-0123456789ab.json"
PICTURE = "serving_profiles/wide/nvidia-geforce-rtx-5090-0123456789ab.png"
README = f"---\nlicense: mit\n---\n# Model\n\n{MARK_BEGIN}\n{MARK_END}\n".encode()


def measured() -> dict[str, Any]:
    entry = {"device": "NVIDIA L4", "requires_free_bytes": 20 * 2**30, "vllm": "0.33.0", "receipt": RECEIPT}
    return config(
        {"wide": needs(20, 9000, kv_cache_memory_bytes=2**30, measurements=[entry]), "small": unrated(4000)}
    )


def files(readme: bytes | None = README) -> dict[str, bytes]:
    made = {
        "config.json": json.dumps(measured()).encode(),
        f"serving_profiles/{RECEIPT}": to_json(a_measurement("wide")).encode(),
        PICTURE: b"\x89PNG",
    }
    return made if readme is None else {**made, "README.md": readme}


def block(repo: str) -> str:
    """What the repo's card must hold."""
    there = files()
    return render_block(measured(), repo, there, there)


def test_a_repos_block_has_its_receipts_and_pictures(repos: LoopbackHub, command: Reader) -> None:
    """And the repo's id in the commands."""
    repos.create("card/print", files())

    told = command.ask(cli("card", "card/print"))
    assert (told["status"], told["out"], told["err"]) == (0, f"{block('card/print')}\n", "")
    assert "vllm serve card/print\n" in told["out"]
    assert f"]({PICTURE})" in told["out"]


def test_a_repos_card_is_checked_at_its_revision(repos: LoopbackHub, command: Reader) -> None:
    """A pull request's card is in date, main's is not; what to type is for a downloaded folder."""
    repos.create("card/check", files())
    repos.branch("card/check", "new")
    repos.commit("card/check", {"README.md": with_block(README, block("card/check"))}, revision="new")

    old, new = command.together(
        cli("card", "card/check", "--check"), cli("card", "card/check", "--check", "--revision", "new")
    )
    assert (new["status"], new["out"]) == (0, "README.md: the card is up to date\n")
    assert old["status"] == 1
    assert old["err"].startswith("Error: README.md:7: the card is out of date: ")
    assert "`zenit-hub card FOLDER --write`" in old["err"]


def test_a_repo_without_a_card_is_not_in_date(repos: LoopbackHub, command: Reader) -> None:
    repos.create("card/bare", files(None))

    told = command.ask(cli("card", "card/bare", "--check"))
    assert told["status"] == 1
    assert told["err"].startswith("Error: there is no README.md. ")


def test_a_repo_is_not_written(repos: LoopbackHub, command: Reader) -> None:
    """That is publish's; nothing but reading is asked of the hub."""
    repos.create("card/write", files())
    repos.forget_requests()

    told = command.ask(cli("card", "card/write", "--write"))
    assert told["status"] == 2
    assert told["err"].startswith("Error: --write is for a README.md on this machine")
    assert {asked.method for asked in repos.requests} <= {"GET", "HEAD", "POST"}
    assert repos.count(method="POST", path="*/commit/*") == 0


def test_what_the_hub_refuses_is_one_line(repos: LoopbackHub, command: Reader) -> None:
    repos.create("card/gated", files(), gated="manual")

    for told, why in zip(
        command.together(cli("card", "card/gone"), cli("card", "card/gated")),
        ("no such repo, or it is private", "access to it is restricted"),
        strict=True,
    ):
        assert (told["status"], told["out"]) == (1, "")
        assert why in told["err"]
        assert len(told["err"].splitlines()) == 1
