"""The table of vLLM's options. That it is the installed vLLM's: engine/test_arguments_parity.py."""

from __future__ import annotations

import pytest

from zenit_hub.compat import NEWEST_SUPPORTED, OLDEST_SUPPORTED, PROFILE_FIELDS, release
from zenit_hub.serve_options import is_newer_than_read, minor_version, records, serve_options
from zenit_hub.serve_values import READERS


@pytest.mark.parametrize(
    ("version", "stands_for_it"),
    [
        ("0.17.1", "0.25"),
        ("0.25.1", "0.25"),
        ("0.27.0", "0.27"),
        ("0.33.1.dev3+x", "0.33"),
        ("0.40", "0.33"),
        ("", "0.33"),
    ],
)
def test_a_version_has_the_nearest_parser_that_was_read(version: str, stands_for_it: str) -> None:
    """Below the oldest the oldest, above the newest the newest."""
    assert minor_version(version) == stands_for_it


def test_the_table_reaches_over_all_supported_versions() -> None:
    """A new version is read before it is called supported."""
    for version in (OLDEST_SUPPORTED, NEWEST_SUPPORTED):
        assert release(minor_version(version)) == release(version)[:2]
        assert not is_newer_than_read(version)


@pytest.mark.parametrize("minor", range(25, 34))
def test_the_options_of_a_version_make_a_parser(minor: int) -> None:
    """One destination once, one flag once, types that can be read, and every field of a profile among them."""
    options = serve_options(f"0.{minor}.0")
    flags = [flag for option in options for flag in option.flags]
    dests = [option.dest for option in options]
    assert len(set(flags)) == len(flags)
    assert len(set(dests)) == len(dests)
    assert {option.type.removesuffix("?") for option in options} <= READERS.keys() | {"flag", "switch"}
    assert set(dests) >= PROFILE_FIELDS - {"swap_space"}


def test_entries_are_spelled_out() -> None:
    """What follows from a name is left out of the file, and is there when it is read."""
    found = {entry["dest"]: entry for entry in records("0.33.0")}
    assert found["tensor_parallel_size"]["flags"] == ["--tensor-parallel-size", "-tp"]
    assert found["enable_lora"]["flags"] == ["--enable-lora", "--no-enable-lora", "--disable-lora"]
    assert found["enable_lora"]["off"] == ["--no-enable-lora", "--disable-lora"]
    assert found["enforce_eager"]["off"] == ["--no-enforce-eager"]
    assert found["seed"] == {"dest": "seed", "type": "int", "flags": ["--seed"]}
