"""The names under which measurements lie in a model repo."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenit_hub.errors import PublicationError
from zenit_hub.maintain.publish.receipts import in_repo, picture_path, receipt_path, slug
from zenit_hub.rules import fault


def test_a_receipt_is_named_after_profile_card_and_content() -> None:
    """C5-05: serving_profiles/m256k/nvidia-geforce-rtx-5090-<12 hex>.json."""
    content = b'{"measurement_version": 1}\n'

    path = receipt_path("m256k", "NVIDIA GeForce RTX 5090", content)

    assert path == f"m256k/nvidia-geforce-rtx-5090-{hashlib.sha256(content).hexdigest()[:12]}.json"
    assert re.fullmatch(r"serving_profiles/m256k/nvidia-geforce-rtx-5090-[0-9a-f]{12}\.json", in_repo(path))


def test_the_picture_lies_beside_its_receipt() -> None:
    assert picture_path("m256k/cpu-0123456789ab.json", ".svg") == "m256k/cpu-0123456789ab.svg"


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("cpu", "cpu"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "nvidia-h100-80gb-hbm3-mig-1g-10gb"),
        ("  A -- b__c  ", "a-b-c"),
        ("../../etc/passwd", "etc-passwd"),
        ("Карта", "device"),
        ("", "device"),
    ],
)
def test_a_device_becomes_a_part_of_a_file_name(device: str, name: str) -> None:
    assert slug(device) == name


def test_other_content_has_another_name() -> None:
    assert receipt_path("p", "cpu", b"1") != receipt_path("p", "cpu", b"2")


@pytest.mark.parametrize("profile", ["..", "a/b", "off", "", ".x", "x" * 65])
def test_a_folder_is_named_after_a_valid_profile_alone(profile: str) -> None:
    with pytest.raises(PublicationError):
        receipt_path(profile, "cpu", b"")


@settings(max_examples=60, deadline=None)
@given(
    device=st.text(max_size=128),
    profile=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True).filter(
        lambda name: name != "off"
    ),
)
def test_any_receipt_is_a_path_that_a_section_may_name(device: str, profile: str) -> None:
    path = receipt_path(profile, device, b"")

    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(device))
    assert fault("profile", {"max_model_len": 1, "measurements": [{"receipt": path}]}) is None
    assert ".." not in path.split("/")
