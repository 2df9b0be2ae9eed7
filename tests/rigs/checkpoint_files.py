"""What a tiny checkpoint consists of on disk: random bf16 weights, and a tokenizer trained on the spot.

The weights are made without torch and the same on every machine: the bytes of a tensor depend on the seed
and its name alone.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BYTES_PER_WEIGHT = 2  # bf16
VOCABULARY_SIZE = 512
CHUNK_WEIGHTS = 4 * 1024 * 1024
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)  # their ids are 0, 1 and 2
TURN_END_ID = SPECIAL_TOKENS.index(TURN_END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Enough different words that the vocabulary fills up: an id without a token could not be shown.
TRAINING_TEXT = """
A checkpoint carries the values that make its longest window work, and whoever types one command gets a
running engine. The profile names the window, the cache and the batch; the card says how much memory is free.
Whatever was typed by a person stands; everything else is filled from the section of the repository. When
nothing is known about the machine, the default profile is taken and the reason is written down in one line.
Several requests share the same key and value cache, while recurrent layers keep a state of fixed size.
Quick brown foxes jump over lazy dogs; seven wizards pack five dozen jugs of vinegar before midnight.
The weather in the Altay mountains changes quickly: sunshine, thunder, hail and a rainbow within an hour.
Ships sail from harbour to harbour with timber, grain, copper, wool and letters for distant relatives.
A good test describes behaviour, uses small data, runs quickly and leaves neither files nor processes behind.
""".strip()


class Tensor(NamedTuple):
    """A tensor to be written: all ones (a norm that changes nothing) or random."""

    name: str
    shape: tuple[int, ...]
    ones: bool = False

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * BYTES_PER_WEIGHT


def write_safetensors(path: Path, tensors: Iterable[Tensor], seed: int) -> None:
    """Write the tensors one chunk at a time: a checkpoint of gigabytes takes no memory to make."""
    in_order = list(tensors)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in in_order:
        begin, end = end, end + tensor.size_bytes
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the data aligned
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in in_order:
            file.writelines(_chunks(tensor, seed))


def _chunks(tensor: Tensor, seed: int) -> Iterator[bytes]:
    weights_left = math.prod(tensor.shape)
    source = random.Random(f"{seed}/{tensor.name}")
    while weights_left:
        weights = min(weights_left, CHUNK_WEIGHTS)
        yield b"\x80\x3f" * weights if tensor.ones else _random_bf16(source, weights)
        weights_left -= weights


# A bf16 is sign, 8 bits of exponent, 7 of mantissa. The high byte keeps its random sign and gets the upper
# bits of exponents 120 and 121; the low byte, random as it is, chooses between the two and is the mantissa.
# So magnitudes lie in 2^-7 … 2^-5 with a root mean square of 0.018, near the usual 0.02.
_HIGH_BYTES = bytes((byte & 0x80) | (120 >> 1) for byte in range(256))


def _random_bf16(source: random.Random, weights: int) -> bytes:
    raw = bytearray(source.randbytes(weights * BYTES_PER_WEIGHT))
    raw[1::2] = raw[1::2].translate(_HIGH_BYTES)
    return bytes(raw)


def write_tokenizer(folder: Path, model_max_length: int) -> None:
    """Train a byte-level BPE of 512 tokens and write it with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT.splitlines(), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model_max_length,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
