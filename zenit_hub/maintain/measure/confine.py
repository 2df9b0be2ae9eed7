"""The device made small: inside :meth:`Confiner.hold` a launch has just that many bytes, and no more.

For the host a memory cgroup (``cgroup``), which the launch joins; for cards a process that holds the rest
(``ballast``). Both go away on every way out; what a tool leaves that is killed is removed by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from zenit_hub.maintain.measure.ballast import BallastConfiner, why_no_ballast
from zenit_hub.maintain.measure.cgroup import CgroupConfiner, NoCgroup, find_parent

Method = Literal["cgroup", "ballast"]


class Confiner(Protocol):
    """A way to make devices small."""

    @property
    def method(self) -> Method: ...

    def hold(self, free_bytes: int) -> AbstractContextManager[Path | None]:
        """Inside it a launch has ``free_bytes`` on each device.

        Gives the folder of the cgroup that the launch has to join, ``None`` where it has nothing to do. Raises
        :class:`MeasurementError` where the devices have less than that free, or do not keep still.
        """


def confiner(platform: str, uuids: Sequence[str], root: Path = Path("/")) -> Confiner | str:
    """The confiner for this platform and these cards (or slices), or in one sentence why there is none."""
    if platform == "cuda":
        return why_no_ballast() or BallastConfiner(tuple(uuids))
    if platform != "cpu":
        return f"nothing here can make the memory of the platform {platform} small"
    try:
        return CgroupConfiner(find_parent(root))
    except NoCgroup as why:
        return str(why)
