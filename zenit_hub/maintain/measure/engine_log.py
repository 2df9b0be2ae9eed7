"""What the engine writes: the phases that its lines announce, found as they come, and the text of a failure.

The wording was read in vLLM 0.25.1 to 0.33.0: `gpu_model_runner`, `gpu/model_runner` (the second runner),
`gpu_worker`, `cpu_worker`, `cpu_model_runner`, `kv_cache_utils`, `compilation`.
"""

from __future__ import annotations

from pathlib import Path

from zenit_hub.maintain.measurement import PhaseName

HEAD_BYTES = 2**20
TAIL_BYTES = 3 * 2**20
"""What is kept of a log that is longer than both: how it began, and how it ended."""

CHUNK_BYTES = 256 * 1024
"""Small, because the sampler, in the same process, waits while a chunk is searched."""

CHUNKS_AT_ONCE = 64
LINE_BYTES = 4096
"""What is kept of a line that has not ended yet."""

_ANNOUNCED: dict[PhaseName, tuple[bytes, ...]] = {
    "loading": (b"Starting to load model ", b"Loading model from scratch"),
    "compiling": (
        b" for vLLM's torch.compile",
        b"Dynamo bytecode transform time",
        b"Directly load AOT compilation",
        b"Warming up model for the compilation",
    ),
    "kv_cache": (
        b"Available KV cache memory: ",
        b" memory for KV Cache as specified",
        b" GiB for KV cache on node ",
        b" KV cache size: ",
    ),
    "graphs": (b"Capturing CUDA graphs", b"Graph capturing finished in "),  # a progress bar may be off
}
"""Plain words: searching them is fifty times faster than one expression, and the sampler waits meanwhile."""


class EngineLog:
    """A log that another process writes. Each byte is searched once, however long the log becomes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0
        self._open_line = b""
        self._begun: set[str] = set()

    def new_phases(self) -> list[PhaseName]:
        """Phases announced since the last call, each only the first time; at most 16 MiB further."""
        begun: list[PhaseName] = []
        for _ in range(CHUNKS_AT_ONCE):
            chunk = self._next_chunk()
            if not chunk:
                break
            begun += self._phases_in(chunk)
        return begun

    def text(self) -> str:
        """All of it; of a very long one the beginning and the end."""
        try:
            with self.path.open("rb") as log:
                head = log.read(HEAD_BYTES)
                size_bytes = log.seek(0, 2)
                log.seek(max(len(head), size_bytes - TAIL_BYTES))
                left_out_bytes = log.tell() - len(head)
                tail = log.read(TAIL_BYTES)
        except OSError:
            return ""
        gap = f"\n… {left_out_bytes} bytes left out …\n".encode() if left_out_bytes else b""
        return (head + gap + tail).decode("utf-8", errors="replace")

    def _next_chunk(self) -> bytes:
        try:
            with self.path.open("rb") as log:
                log.seek(self._read_bytes)
                chunk = log.read(CHUNK_BYTES)
        except OSError:
            return b""
        self._read_bytes += len(chunk)
        return chunk

    def _phases_in(self, chunk: bytes) -> list[PhaseName]:
        """The announcements in the lines that end in ``chunk``; a progress bar ends its line with ``\\r``."""
        text = self._open_line + chunk
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._open_line = text[end:][-LINE_BYTES:]
        found: list[tuple[int, PhaseName]] = []
        for name in _ANNOUNCED.keys() - self._begun - {"graphs"}:
            found += _first(name, text, 0, end)
        kv_cache = [where for where, name in found if name == "kv_cache"]
        # Graphs are tried while memory is profiled, too; the phase is the capture behind the KV cache.
        if "graphs" not in self._begun and (kv_cache or "kv_cache" in self._begun):
            found += _first("graphs", text, kv_cache[0] if kv_cache else 0, end)
        begun = [name for _, name in sorted(found)]
        self._begun.update(begun)
        return begun


def _first(name: PhaseName, text: bytes, start: int, end: int) -> list[tuple[int, PhaseName]]:
    """Where that phase is first announced between ``start`` and ``end``; empty: it is not."""
    places = [text.find(words, start, end) for words in _ANNOUNCED[name]]
    return [(min(place for place in places if place >= 0), name)] if max(places) >= 0 else []
