"""From a model's name to its config, as far as this machine goes. Where the Hub comes in: test_reading_hub.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rigs.reading import P3, SECTION, config_file
from zenit_hub.answer import NotHub, Unreadable
from zenit_hub.cli.main import main
from zenit_hub.errors import ModelNotFound
from zenit_hub.limits import MAX_CONFIG_BYTES, MAX_DEPTH
from zenit_hub.read import Found, find_config, hub_repo, local_config, parse, read_file


def padded(size_bytes: int) -> bytes:
    """P3 in a file of that size."""
    return config_file() + b" " * (size_bytes - len(config_file()))


def nested(depth: int) -> bytes:
    """An object of that many levels."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def unreadable(data: bytes) -> str:
    """Why it cannot be used; empty where it can."""
    found = parse(data)
    return found.why if isinstance(found, Unreadable) else ""


def test_a_config_of_16_mib_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    """The limit itself is allowed, and nothing of a larger file is looked at."""
    file = tmp_path / "config.json"
    file.write_bytes(padded(MAX_CONFIG_BYTES))
    assert read_file(file) == P3
    file.write_bytes(padded(MAX_CONFIG_BYTES + 1))
    assert read_file(file) == Unreadable("it is larger than 16777216 bytes and is not read")


def test_a_config_that_is_too_large_is_unreadable_in_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One warning with the limit; the decision is that there is none, exit 0."""
    (tmp_path / "config.json").write_bytes(padded(MAX_CONFIG_BYTES + 1))
    assert main(["plan", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["reason"], answer["profile"]) == ("unreadable", None)
    assert [warning["code"] for warning in answer["warnings"]] == ["config_unreadable"]
    assert "larger than 16777216 bytes" in answer["warnings"][0]["message"]


def test_a_config_nested_as_deep_as_allowed_is_read(tmp_path: Path) -> None:
    """64 levels are read, 65 are not, and a bomb of 100,000 ends like them."""
    assert unreadable(nested(MAX_DEPTH)) == ""
    assert unreadable(nested(MAX_DEPTH + 1)) == "it is nested deeper than 64"
    assert "deep" in unreadable(nested(100_000))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "Git LFS pointer"),
        (b"[]", "an object belongs"),
        (b"7", "an object belongs"),
        (b'{\n "a": }', "not JSON (line 2"),
        (b"", "not JSON (line 1"),
        (b'{"a": "\xff"}', "not UTF-8 (byte 7)"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON (a number)"),
    ],
    ids=["lfs", "list", "number", "broken", "empty", "latin1", "endless-number"],
)
def test_a_config_that_cannot_be_used_says_why(data: bytes, why: str) -> None:
    """Each kind of damage has a sentence of its own, and none is an exception."""
    assert why in unreadable(data)


def test_a_byte_order_mark_is_tolerated() -> None:
    """As vLLM tolerates it."""
    assert parse(b"\xef\xbb\xbf" + config_file()) == P3


def test_a_folder_with_params_json_only_has_no_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model in Mistral's format: nothing to say about it."""
    (tmp_path / "params.json").write_text('{"dim": 256}')
    assert main(["plan", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["reason"], answer["warnings"]) == ("no_section", [])


def test_the_section_is_found_through_the_cache_s_link(tmp_path: Path) -> None:
    """Offline the model is a snapshot folder, whose files are links to blobs."""
    folder = tmp_path / "models--example-org--example-model"
    snapshot = folder / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "4b825dc6").write_bytes(config_file())
    (snapshot / "config.json").symlink_to("../../blobs/4b825dc6")
    assert find_config(str(snapshot), revision="v1.2") == Found(P3)


def test_the_config_beside_a_gguf_file_is_its_config(tmp_path: Path) -> None:
    """Where there is one; without it there is no section, and no error."""
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert find_config(str(tmp_path / "x.gguf")) == Found(None)
    (tmp_path / "config.json").write_bytes(config_file())
    assert find_config(str(tmp_path / "x.gguf")) == Found(P3)


def test_a_gguf_file_in_a_home_that_lacks_it_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``~`` is expanded, an unknown user's stays, and neither raises anything but what a person can mend."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for model in ("~/models/x.gguf", "~nobody-of-that-name/x.gguf"):
        assert local_config(model) is None
        with pytest.raises(ModelNotFound, match="there is no such model"):
            find_config(model)


@pytest.mark.parametrize(
    ("model", "repo"),
    [
        ("example-org/example-model", "example-org/example-model"),
        ("example-org/example-GGUF:Q4_K_M", "example-org/example-GGUF"),
        ("gpt2", "gpt2"),
        ("/models/x", None),
        ("./x", None),
        ("org/model/more", None),
        ("org/../model", None),
        ("org/mo--del", None),
        ("o/" + "x" * 95, None),
        ("\x1b[31m/x", None),
        ("", None),
    ],
)
def test_a_hub_id_is_told_from_a_path(model: str, repo: str | None) -> None:
    """One file of a repo is named by the repo; what the Hub would refuse is never asked for."""
    assert hub_repo(model) == repo


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_cloud_storage_is_not_looked_at(scheme: str) -> None:
    """The model itself is the answer."""
    assert find_config(f"{scheme}://bucket/model") == Found(NotHub(f"{scheme}://bucket/model"))


def test_the_first_section_key_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The family's own name before the neutral one."""
    other = {"default_profile": "x", "profiles": {"x": {"max_model_len": 1}}}
    (tmp_path / "config.json").write_bytes(config_file(serving_profiles=other))
    assert main(["plan", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["considered"].keys() == SECTION["profiles"].keys()
