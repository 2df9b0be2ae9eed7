"""What a launch needs free, found by running the engine.

``guard``     a process of its own that starts the engine in a group of its own and leaves nothing behind
``launch``    `vllm serve` with one profile forced: start, phases, HTTP, end; on ``guarded`` (a command behind
              the guard), ``engine_log`` (phases as its lines announce them) and ``loopback`` (HTTP)
``workload``  the requests: one that fills the window, the widest batch, all sequences at once
``samplers``  memory from the outside: ``sample_nvml`` for cards, ``sample_host`` for the CPU platform (on
              ``engine_memory`` and ``process_memory``); both on the loop of ``sampling`` (what it asks of them:
              ``readings``), with ``processes`` for who is whose; ``trace`` what came of it
``reasons``   the engine's last words as a typed failure
``confine``   the device made small: a cgroup for the host, ballast for a card
``boots``     the boots of one profile, in order, with retries
``measure``   all profiles of a run: facts, boots, files, resume
``picture``   a measurement as SVG and PNG
"""
