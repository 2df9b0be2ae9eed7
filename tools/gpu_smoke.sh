#!/usr/bin/env bash
# What only a machine with an NVIDIA card can show: the probe against torch, NVML's sampling rate and cost, ballast
# that leaves exactly so many bytes, a fall that is exactly what torch took. Needs torch and nvidia-ml-py, no vLLM
# and no network; takes half a minute. Prints a table; ends with 1 on a deviation, with 2 where it cannot run.
#
#     tools/gpu_smoke.sh [--seconds 60]
#     PYTHON=/path/to/python tools/gpu_smoke.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CUDA_DEVICE_ORDER=PCI_BUS_ID # NVML's order
exec "${PYTHON:-python3}" -m tools.gpu_smoke "$@"
