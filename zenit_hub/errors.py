"""Every exception that leaves this package, and the one sentence that each becomes.

A message says what went wrong, what was got, what is allowed and what to type next; the fields hold
the parts, so that a caller can use them without parsing the sentence.
"""

from __future__ import annotations


class ZenitHubError(Exception):
    """Something that a person can mend. ``str()`` is one line, fit for a terminal."""

    exit_status = 1

    def __init__(self, what: str, *, got: object = None, allowed: str = "", next_step: str = "") -> None:
        self.what = what
        self.got = got
        self.allowed = allowed
        self.next_step = next_step
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.got is not None:
            parts.append(f"got {self.got}")
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        sentence = "; ".join(parts)
        return f"{sentence}. {self.next_step}" if self.next_step else sentence


class UsageError(ZenitHubError):
    """The command line itself is off (exit status 2)."""

    exit_status = 2


class ModelNotFound(ZenitHubError):
    """The model, its revision or its ``config.json`` does not exist."""


class MachineFileError(ZenitHubError):
    """A described machine that cannot be read or does not follow the contract."""


class CardError(ZenitHubError):
    """A model card that cannot be rendered or is out of date."""


class MeasurementError(ZenitHubError):
    """A measurement that cannot be read, made or used."""


class PublicationError(ZenitHubError):
    """What may not, or cannot, be published as it is."""


class ExportError(ZenitHubError):
    """A launch that cannot be written down as it was asked for."""


class ProfileNotDeclared(ZenitHubError, ValueError):
    """``ZENIT_SERVING_PROFILE`` names a profile that is not there, or one that is invalid."""


class StrictRefusal(ZenitHubError, ValueError):
    """A launch that ``ZENIT_SERVING_STRICT=1`` does not let start."""
