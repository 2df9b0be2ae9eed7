"""NVML's errors in words: what is wrong, and what to do about it."""

from __future__ import annotations

from zenit_hub.text import printable

_WORDS = {
    "LibRmVersionMismatch": "a mismatch of the NVIDIA driver and its library, as after an update: reboot or reload it",
    "LibraryNotFound": "NVML's library libnvidia-ml.so.1 is not there: install the NVIDIA driver, or mount it here",
    "DriverNotLoaded": "the NVIDIA driver is not loaded",
    "NoPermission": "no permission to ask NVML",
    "NotSupported": "NVML does not support the question on this card",
    "GpuIsLost": "the GPU has fallen off the bus: reset it or reboot",
    "InsufficientPower": "the GPU lacks power: look at its power cables",
    "FunctionNotFound": "the driver's NVML is too old for the question",
    "OperatingSystem": "the operating system blocks the GPU, as in a container without its device files",
    "ModuleNotFound": "neither pynvml nor vllm.third_party.pynvml can be imported: pip install nvidia-ml-py",
    "Timeout": "NVML did not answer in 5 s",
}


def in_words(error: str) -> str:
    """``error`` is NVML's name as in pynvml: ``NoPermission`` for ``NVMLError_NoPermission``."""
    name = error.removeprefix("NVMLError_")
    return f"{_WORDS[name]} ({name})" if name in _WORDS else printable(name)
