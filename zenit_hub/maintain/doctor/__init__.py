"""What keeps serving with profiles from working on this machine, and what to type.

``facts`` are gathered once (``gather``: the cards by ``holders``, the Hub by ``hub``, all at the same time and under
one deadline), the checks are functions of them: ``checks`` lists all of them in order; those of the machine's memory
stand in ``memory``, those of the Hub and the model in ``model``. Nothing here imports vLLM or torch.
"""
