"""A repo with a section, measurements for it, and who publishes them; the Hub's client and its transport are real.

maker = Publisher(hub)
publish = maker.publish(measured("m256k", gib=24))
assert maker.figures() == {"m256k": 24 * GIB}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.measurements import CARD, GIB, MIB, a_boot, a_measurement
from tests.rigs.hub import LoopbackHub
from zenit_hub.maintain.measurement import MeasuredDevice, Measurement, WeightFile, to_json
from zenit_hub.maintain.publish import receipts
from zenit_hub.maintain.publish.advice import Asked
from zenit_hub.maintain.publish.content import Measurements, Receipt
from zenit_hub.maintain.publish.hub import Hub, Timeouts
from zenit_hub.maintain.publish.outcomes import Publication
from zenit_hub.maintain.publish.publish import Proposal, Waits, publish
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END
from zenit_hub.maintain.publish.retry import Pace

REPO = "zenit/altay"
OWNER, STRANGER = "hf_owner", "hf_stranger"
WEIGHTS = b"weights" * 9
ARCHITECTURE = "LomonosovZenitAltayForConditionalGeneration"
WINDOWS = {"s32k": 32768, "m256k": 262144, "l1m": 1048576, **{f"p{n}": 65536 * (n + 1) for n in range(12)}}
README = f"---\nlicense: apache-2.0\n---\n# Altay\n\n{MARK_BEGIN}\nold\n{MARK_END}\n\nThe end.\n".encode()

COMMITS = f"/api/models/{REPO}/commit/*"


def profile_values(name: str) -> dict[str, Any]:
    """The profile as the repo holds it, and as it was measured."""
    return {
        "max_model_len": WINDOWS[name],
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 1,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 6 * GIB,
    }


def config_of(*profiles: str, **section: Any) -> dict[str, Any]:
    """A config whose section has these profiles, the first as default."""
    return {
        "architectures": [ARCHITECTURE],
        "rms_norm_eps": 1e-06,
        "max_position_embeddings": 1048576,
        "lomonosov_serving_profiles": {
            "default_profile": profiles[0],
            "profiles": {name: profile_values(name) for name in profiles},
            **section,
        },
    }


def text_of(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(config, indent=2) + "\n").encode()


def measured(profile: str, gib: float = 24, *, device: str = CARD, **changes: Any) -> Measurement:
    """A verified measurement of the repo's own weights."""
    whole = a_measurement()
    card: MeasuredDevice = replace(whole.device, name=device)
    weight = WeightFile("model.safetensors", len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest(), None)
    figure = int(gib * GIB)
    fields: dict[str, Any] = {
        "profile": replace(whole.profile, name=profile, values=profile_values(profile)),
        "device": card,
        "model": replace(whole.model, repo=REPO, weights=(weight,)),
        "requires_free_bytes": figure,
        "boots": (a_boot("cold", figure - 100), a_boot("warm", figure - 20 * MIB)),
    }
    return replace(whole, **{**fields, **changes})


def receipt_of(measurement: Measurement) -> Receipt:
    """As it is read from a file."""
    data = to_json(measurement).encode()
    path = receipts.receipt_path(measurement.profile.name, measurement.device.name, data)
    return Receipt(f"{measurement.profile.name}.json", measurement, path, {receipts.in_repo(path): data})


def plain_block(config: Mapping[str, Any], *_: object) -> str:
    """A card's block in a line a profile: quick to make, and it changes with every figure."""
    profiles = config["lomonosov_serving_profiles"]["profiles"]
    return "\n".join(f"- {name}: {values.get('requires_free_bytes')}" for name, values in profiles.items())


def content_of(measurements: Iterable[Measurement], **settings: Any) -> Measurements:
    found = tuple(receipt_of(measurement) for measurement in measurements)
    return Measurements(REPO, found, **{"version": "0.1.0", "block": plain_block, **settings})


class QuickClock:
    """Time that passes only by waiting; the same chance each time."""

    def __init__(self, chance: float = 0.5) -> None:
        self.slept_s: list[float] = []
        self._chance = chance

    def now_s(self) -> float:
        return sum(self.slept_s)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)

    def chance(self) -> float:
        return self._chance


@dataclass
class Somebody:
    """Who is told what goes on, and who says yes or no."""

    answer: bool = True
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)

    @property
    def said(self) -> list[str]:
        """The notes but those that every publication has."""
        return [note for note in self.notes if not note.startswith(("Reading ", "Sending "))]

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def agrees(self, proposal: Proposal) -> bool:
        self.proposals.append(proposal)
        return self.answer


@dataclass
class Publisher:
    """The loopback hub with a repo, and one who publishes into it."""

    hub: LoopbackHub
    profiles: tuple[str, ...] = ("s32k", "m256k")
    token: str | None = OWNER
    pace: Pace = field(default_factory=Pace)
    timeouts: Timeouts = field(default_factory=lambda: Timeouts(read_s=5, send_s=5, total_s=20))
    person: Somebody = field(default_factory=Somebody)
    clock: QuickClock = field(default_factory=QuickClock)
    first: str = ""

    def __post_init__(self) -> None:
        files = {
            "config.json": text_of(config_of(*self.profiles)),
            "README.md": README,
            "model.safetensors": WEIGHTS,
        }
        self.first = self.hub.create(REPO, files, lfs=("*.safetensors",), token=OWNER)
        self.hub.account("stranger", token=STRANGER)

    def publish(
        self, *measurements: Measurement, settings: Mapping[str, Any] | None = None, **asked: Any
    ) -> Publication:
        """Publish, by default one measurement of m256k."""
        content = content_of(measurements or (measured("m256k"),), **(settings or {}))
        hub = Hub(REPO, self.token, endpoint=self.hub.url, timeouts=self.timeouts)
        return publish(hub, content, Asked(**asked), self.person, Waits(self.pace, self.clock))

    def config(self, revision: str = "main") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.hub.read(REPO, "config.json", revision))
        return found

    def figures(self, revision: str = "main") -> dict[str, int]:
        """Profile → its published figure."""
        profiles = self.config(revision)["lomonosov_serving_profiles"]["profiles"]
        return {n: v["requires_free_bytes"] for n, v in profiles.items() if "requires_free_bytes" in v}

    def ours(self, revision: str = "main") -> list[str]:
        """The titles of our commits, newest first."""
        repo = self.hub.repository(REPO)
        summaries = [commit.summary for commit in repo.history(repo.resolve(revision))]
        return [summary for summary in summaries if summary.startswith("Measured: ")]

    def somebody_publishes(self, profile: str, gib: float, device: str = "Card B") -> str:
        """Somebody else's commit with a figure; the new head."""
        config = self.config()
        config["lomonosov_serving_profiles"]["profiles"][profile] |= {
            "requires_free_bytes": int(gib * GIB),
            "measurements": [{"device": device, "requires_free_bytes": int(gib * GIB), "vllm": "0.32.0"}],
        }
        return self.hub.commit(REPO, {"config.json": text_of(config)})

    def somebody_writes(self, path: str = "notes.md", content: bytes = b"notes\n") -> str:
        """Somebody else's commit to another file; the new head."""
        return self.hub.commit(REPO, {path: content})

    def somebody_writes_on(self) -> str:
        """Another commit each time."""
        return self.somebody_writes("notes.md", f"{len(self.hub.requests)}\n".encode())
