"""What a card's allocator held beside weights, KV pool and CUDA graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zenit_hub.engine.ledger import Ledger


class Counters:
    """``torch.cuda``'s counters: what is held, and the most since the last reset."""

    def __init__(self) -> None:
        self.held = self.most = 0

    def take(self, size: int) -> None:
        self.held += size
        self.most = max(self.most, self.held)

    def memory_allocated(self) -> int:
        return self.held

    def max_memory_allocated(self) -> int:
        return self.most

    def reset_peak_memory_stats(self) -> None:
        self.most = self.held


def test_the_peak_is_what_is_neither_weights_nor_pool_nor_graphs() -> None:
    """Loading's own peak is gone by then, and the capture's is in the graphs."""
    counters = Counters()
    counters.take(700)
    counters.take(-100)  # 600 of weights stay
    ledger = Ledger(counters, 600)
    runner = SimpleNamespace(kv_caches=[storage(1000)])

    def with_peak(peak: int, stays: int = 0, answer: int = 0) -> int:
        counters.take(peak)
        counters.take(stays - peak)
        return answer

    with_peak(50)  # the profile run
    ledger.around_pool(lambda: with_peak(1000, stays=1000), runner)()
    with_peak(20)
    assert ledger.around_capture(lambda: with_peak(400, stays=30, answer=300))() == 300
    with_peak(70)  # the workload

    assert (ledger.weights_bytes, ledger.graphs_bytes, ledger.peak_bytes()) == (600, 300, 70)


def storage(size: int) -> Any:
    """A tensor, as far as the ledger looks at it."""
    return SimpleNamespace(untyped_storage=lambda: SimpleNamespace(data_ptr=lambda: 1, nbytes=lambda: size))


def test_a_cpu_has_no_peak() -> None:
    """Weights and graphs all the same."""
    ledger = Ledger(None, 600)
    ledger.around_pool(lambda: None, SimpleNamespace())()
    ledger.around_capture(lambda: None)()

    assert (ledger.weights_bytes, ledger.graphs_bytes, ledger.peak_bytes()) == (600, 0, None)
