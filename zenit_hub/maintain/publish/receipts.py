"""The files that carry a measurement in full: the receipt is the measurement's file, byte for byte.

Its name holds the hash of its content, so that two runs never share a name and a receipt never changes.
"""

from __future__ import annotations

import hashlib
import re

from zenit_hub.errors import PublicationError
from zenit_hub.rules import fault
from zenit_hub.text import printable

FOLDER = "serving_profiles"
"""In the model repo; the section names receipts relative to it."""

_HASH_DIGITS = 12
_RECEIPT_SUFFIX = ".json"
_NAMELESS = "device"
"""Stands for a device whose name has no letter or digit of ASCII; the hash tells two of them apart."""


def receipt_path(profile: str, device: str, content: bytes) -> str:
    """``m256k/nvidia-geforce-rtx-5090-0123456789ab.json``: below :data:`FOLDER`, as an entry names it.

    The device's name as ``[a-z0-9-]``, then the first 12 digits of the content's SHA-256. Raises
    :class:`~zenit_hub.errors.PublicationError` for a profile's name that the schema refuses.
    """
    if fault("profileName", profile) is not None:
        raise PublicationError("a receipt's folder is a profile's name", got=printable(profile))
    digits = hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
    return f"{profile}/{slug(device)}-{digits}{_RECEIPT_SUFFIX}"


def slug(device: str) -> str:
    """A device's name as a part of a file's: lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or _NAMELESS


def picture_path(receipt: str, suffix: str) -> str:
    """The picture beside a receipt; ``suffix``: ``.svg`` or ``.png``."""
    return f"{receipt.removesuffix(_RECEIPT_SUFFIX)}{suffix}"


def in_repo(path: str) -> str:
    """A receipt's or picture's path from the top of the repo."""
    return f"{FOLDER}/{path}"
