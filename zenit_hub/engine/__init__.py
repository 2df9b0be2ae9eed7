"""Everything that touches vLLM. Nothing of vLLM is imported before a function here is called.

``facts``  what the installed engine is: version, fields, defaults, platform
``typed``  what the caller said: patches of vLLM's parser and argument classes that remember it
``config`` a model's config through vLLM's own helpers
``cluster`` and ``nodes``: the cards of the Ray cluster that vLLM would run on
``hook``   the wrapper around ``EngineArgs.create_engine_config``
``measured`` and ``ledger``: the memory of an engine that ``zenit-hub measure`` started, and of no other
"""
