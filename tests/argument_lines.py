"""Command lines that are read both by us and by vLLM's own parser. ``{dir}`` is the folder with the files below."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "flat.yaml": "max-model-len: 32768\ngpu-memory-utilization: 0.92\nno-enable-prefix-caching: true\n",
    "under_scores.yml": "max_model_len: 100000\nmax_num_seqs: 2\nkv_cache_dtype: fp8\n",
    "false.yaml": "enable-prefix-caching: false\nmax-num-seqs: 1\nheadless: false\n",
    "nested.yaml": "compilation-config:\n  mode: 3\nhf-overrides:\n  rope_parameters:\n    factor: 4.0\n",
    "lists.yaml": "served-model-name:\n  - a\n  - b\nlora-modules: []\ndata-parallel-size: 2\n",
    "kinds.yaml": "enforce-eager: yes\nmax-model-len: 256k\nrevision: main\nseed: 7\nquantization: null\n",
    "dotted.yaml": "hf-overrides.a.b: 5\n",
    "model.yaml": "model: other/model\nport: 9000\n",
    "empty.yaml": "",
    "list.yaml": "- max-model-len\n- 5\n",
    "broken.yaml": "max-model-len: [1,\n",
    "numbers.yaml": "5: 6\n",
    "bad_value.yaml": "max-model-len: banana\n",
    "date.yaml": "hf-overrides:\n  day: 2026-01-01\n",
    "settings.json": '{"max-model-len": 5}',
}


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


_LINES = """
--max-model-len 4096
--max-model-len 256k
--max-model-len 256K
--max-model-len 25.6k
--max-model-len 1m
--max-model-len 1M
--max-model-len auto
--max-model-len AUTO
--max-model-len -1
--max-model-len -2
--max-model-len 1_000
--max_model_len=256K
--max_model-len 5
--max-model-len banana
--max-model-len 2.5K
--max-model-len 1.5
--max-model-len
--max-model-len 1 --max-model-len 2
--max-model-len= 5
--max-model 7
--max-num 7
--max-num-s 7
--max-num-seqs 4k
--max-num-seqs -5
--max-num-batched-tokens 2k
--max-num-batched-tokens 2.5K
--max-num-batched-tokens 0
--max-num-batched-tokens auto
--kv-cache-memory-bytes 5g
--kv-cache-memory-bytes 5G
--kv-cache-memory-bytes None
--kv-cache-dtype fp8 --kv_cache_dtype=auto
--kv-cache-dtype fp9
--gpu-memory-utilization 0.92
--device-memory-utilization 0.5
--gpu-memory-utilization half
--gpu-memory-utilization -0.5 --port 80
--gpu-memory-utilization -0.5
--enable-prefix-caching
--no-enable-prefix-caching
--no-enable-prefix-caching --enable-prefix-caching
--enable-prefix-caching=true
--enforce-eager true
--enforce-eager --no-async-scheduling --no-skip-mm-profiling
--enforce
--no-enf
-tp 2 -pp 3 -dp 4
-tp=2
-t 2
-d 2
-tp2
-dpl 1 -dpn 0 -dpr 2 -dpb ray -dpa 10.0.0.1 -dpp 1234
--data-parallel-hybrid-lb --data-parallel-external-lb
--nnodes 2 --node-rank 1 --headless
--api-server-count 2
-asc 3
--distributed-executor-backend ray
--distributed-executor-backend mp
--distributed-executor-backend nonsense
--device-ids 0,1,GPU-5
--disable-custom-all-reduce
--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both","engine_id":"e"}
--kv-transfer-config {"kv_connector":
--kv-transfer-config.kv_connector NixlConnector --kv-transfer-config.engine_id e --kv-transfer-config.kv_role kv_both
--limit-mm-per-prompt {"image":4,"video":0}
--limit-mm-per-prompt.image 4 --limit-mm-per-prompt.video=0
--limit-mm-per-prompt {
--limit-mm-per-prompt 3
--quantization fp8
-q awq
-qawq
--quantization None
--dtype float16
--dtype float17
--hf-overrides {"a":1}
--hf-overrides {"a":1} --hf-overrides.b 2
--hf-overrides.a 1 --hf-overrides.b.c x --hf-overrides.b.d 1k
--hf_overrides.a_b 1
--hf-overrides.architectures+ A,B --hf-overrides.architectures+=C
--hf-overrides.a
--hf-overrides.a -5
--speculative-config {"method":"ngram","num_speculative_tokens":3}
-sc {"method":"ngram"}
-sc.method ngram -sc.num_speculative_tokens 3
--enable-lora --max-loras 2
--max-lora-rank 17
--cpu-offload-gb 4
--num-gpu-blocks-override 100
--kv-offloading-size 2.5
--mamba-cache-dtype float32 --mamba-ssm-cache-dtype auto
--mamba-cache-dtype fp8
-cc {"mode":3}
-cc.mode=3 -cc.cudagraph_mode NONE
-cc 3
--compilation-config [1]
-O3
-O 2
-O=1
-O
-O fast
--optimization-level 0
--revision main --code-revision abc --tokenizer t --tokenizer-mode slow
--hf-config-path here --config-format hf --load-format dummy
--trust-remote-code
--hf-token
--hf-token abc --port 80
--hf-token=abc
--api-key a b --port 80
--api-key=a b
--api-key
--served-model-name a b c
--port 8000
--port eighty
--host 0.0.0.0
--enable-sleep-mode
--middleware a.b --middleware c.d
--moe-backend Flashinfer-TRTLLM
--allowed-origins ["*"]
--allowed-origins *
--config={dir}/flat.yaml
--config {dir}/flat.yaml
--max-model-len 1M --config {dir}/flat.yaml
--config {dir}/flat.yaml --max-model-len 1M
--config {dir}/under_scores.yml
--config {dir}/false.yaml
--config {dir}/nested.yaml
--config {dir}/nested.yaml --hf-overrides.rope_parameters.factor 8
--config {dir}/lists.yaml
--config {dir}/kinds.yaml
--config {dir}/dotted.yaml
--config {dir}/model.yaml
--config {dir}/empty.yaml
--config {dir}/list.yaml
--config {dir}/broken.yaml
--config {dir}/numbers.yaml
--config {dir}/bad_value.yaml
--config {dir}/date.yaml
--config {dir}/settings.json
--config {dir}/missing.yaml
--config {dir}
--config
--conf {dir}/flat.yaml
--config {dir}/flat.yaml --config {dir}/false.yaml
--model other
--port 80 stray
-- --port 80
--port 80 --
"""

KNOWN_LINES: list[list[str]] = [line.split(" ") for line in _LINES.strip().splitlines()] + [
    [],
    ["--max-model-len", " 256k "],
    ["--max-model-len", ""],
    ["--kv-transfer-config", '{"engine_id": "1k", "kv_connector_extra_config": {"cpu_bytes_to_use": 80m}}'],
    ["--default-chat-template-kwargs", '{"enable_thinking": false}'],
    ["--hf-overrides", ' {"a": [1, 2]} '],
    ["--max-num-batched-tokens", "9" * 400 + "k"],
    ["--hf-overrides.a", "9" * 5000],
    ["--hf-overrides.a", "[" * 5000],
    ["--limit-mm-per-prompt", "[" * 5000],
    [""],
]
"""Lines of options that vLLM knows, well and badly formed. (What it does not know passes by, to us.)"""
