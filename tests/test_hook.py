"""x"""
from __future__ import annotations
import json
from pathlib import Path
from tests.rigs.hook import HookServer
from tests.rigs.hook_child import Launch, cards, serve
pytest_plugins = ("tests.rigs.hook_fixtures",)
P3 = next(json.loads(l)["config"] for l in (Path(__file__).parent/"data/field-cases.jsonl").read_text().splitlines() if '"C1-03a"' in l)
def two(model: str) -> list[Launch]:
    cards(440234148, total_bytes=85018877624)
    first = serve(model)
    cards(84460531876, total_bytes=85018877624)
    return [first, serve(model, "--max-num-seqs","1")]
def test_x(hook: HookServer, tmp_path: Path) -> None:
    """x"""
    (tmp_path/"config.json").write_text(json.dumps(P3))
    for l in hook.run(two, model=str(tmp_path)):
        l["fields"] = {k: v for k, v in (l["fields"] or {}).items() if k in ("max_model_len","gpu_memory_utilization", "_api_process_rank")}
        print(json.dumps(l, indent=1))
    assert 0
