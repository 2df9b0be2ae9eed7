"""The public names that act on the engine's own classes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def in_child(code: str) -> Any:
    """What a fresh interpreter prints as JSON."""
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(child.stdout.splitlines()[-1])


def test_apply_profile_fills_what_was_left_alone() -> None:
    """Of real ``EngineArgs``: typed values stay, what the engine lacks is not set, what is set is said."""
    found = in_child(
        """
import json
from vllm.engine.arg_utils import EngineArgs
from zenit_hub import apply_profile
args = EngineArgs(model="m", max_num_seqs=7)
body = {"max_model_len": 4096, "max_num_seqs": 2, "swap_space": 4, "enforce_eager": True, "odd": 1}
said = apply_profile(args, "p", body)
refused = []
for name, bad in (("p", {}), ("off", body), ("p", {"max_model_len": "x"})):
    try:
        apply_profile(args, name, bad)
    except ValueError as error:
        refused.append(str(error))
print(json.dumps([said, args.max_model_len, args.max_num_seqs, args.enforce_eager, hasattr(args, "swap_space"),
                  hasattr(args, "odd"), refused]))
"""
    )

    said, window, sequences, eager, swap, odd, refused = found
    assert said == ["max_model_len=4096", "enforce_eager=True"]
    assert (window, sequences, eager, swap, odd) == (4096, 7, True, False, False)
    assert [sentence.split(":")[0] for sentence in refused] == [
        "profile 'p' is invalid",
        "profile 'off' is invalid",
        "profile 'p' is invalid",
    ]


def test_install_is_true_once() -> None:
    """And the flag is set on ``EngineArgs``."""
    found = in_child(
        """
import json
from zenit_hub import install_model_owned_serving_defaults as install
from vllm.engine.arg_utils import EngineArgs
print(json.dumps([install(), install(), EngineArgs._zenit_serving_profiles_installed]))
"""
    )

    assert found[-2:] == [False, True]
