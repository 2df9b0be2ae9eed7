"""What the hook says about what it read: once, in one line, whose level is that of the matter."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.hub import LoopbackHub
from tests.rigs.reading import SECTION, Reader, config_file, hook
from zenit_hub.limits import MAX_CONFIG_BYTES

pytest_plugins = ("tests.rigs.reading_fixtures",)

DAMAGED = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "Git LFS pointer"),
    "list": (b"[]", "an object belongs"),
    "broken": (b'{"lomonosov_serving_profiles": {', "not JSON (line 1"),
    "large": (
        config_file() + b" " * (MAX_CONFIG_BYTES + 1 - len(config_file())),
        "larger than 16777216 bytes",
    ),
}
"""A config, and what is said of it."""

FORCED = {"ZENIT_SERVING_PROFILE": "m256k"}
"""Makes the choice independent of this machine's memory."""


def test_figures_of_another_repo_are_void(repos: LoopbackHub, reader: Reader, tmp_path: Path) -> None:
    """The choice stands; both ids are named for another Hub id, and nothing for the same one or a folder."""
    data = config_file(lomonosov_serving_profiles={**SECTION, "repo": "derived/base"})
    (tmp_path / "config.json").write_bytes(data)
    for repo in ("derived/base", "derived/finetune"):
        repos.create(repo, {"config.json": data})
    repos.tag("derived/base", "v1")
    finetune, *same = reader.together(
        hook("derived/finetune", environ=FORCED),
        hook("derived/base", environ=FORCED),
        hook("derived/base", revision="v1", environ=FORCED),
        hook(str(tmp_path), environ=FORCED),
    )
    (void,) = [line for line in finetune.warnings if "[measurement_void]" in line]
    assert "derived/base" in void
    assert "derived/finetune" in void
    for told in same:
        assert not [line for line in told.warnings if "[measurement_void]" in line]
        assert told["set"]["max_model_len"] == finetune["set"]["max_model_len"] == 262144
        assert told["set"].keys() == finetune["set"].keys()


def test_a_config_that_cannot_be_used_is_one_warning(
    repos: LoopbackHub, reader: Reader, tmp_path: Path
) -> None:
    """From a folder and from the Hub, with the reason; vLLM starts as if we were not there."""
    orders, reasons = [], []
    for name, (data, why) in DAMAGED.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_bytes(data)
        repos.create(f"damaged/{name}", {"config.json": data})
        orders += [hook(str(folder)), hook(f"damaged/{name}")]
        reasons += [why, why]
    for told, why in zip(reader.together(*orders), reasons, strict=True):
        assert (told["raised"], told["vllm_goes_on"], told["set"]) == (None, True, {})
        assert told.lines == told.warnings
        assert [why in line for line in told.lines] == [True]
        assert "vLLM starts without profiles" in told.lines[0]


def test_a_config_of_16_mib_is_read(repos: LoopbackHub, reader: Reader) -> None:
    """The limit itself is allowed."""
    repos.create(
        "large/model", {"config.json": config_file() + b" " * (MAX_CONFIG_BYTES - len(config_file()))}
    )
    told = reader.ask(hook("large/model", environ=FORCED))
    assert told["set"]["max_model_len"] == 262144


def test_cloud_storage_is_one_line(reader: Reader) -> None:
    """Nothing is looked at, and vLLM has its turn."""
    told = reader.ask(hook("s3://bucket/model"))
    assert (told["raised"], told["vllm_goes_on"], told["set"], told.warnings) == (None, True, {}, [])
    assert ["cloud storage" in line for line in told.lines] == [True]
