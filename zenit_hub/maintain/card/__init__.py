"""The block of a model card that says which window which card gets.

| module | what it holds |
|---|---|
| `cards.py` | the common cards with their memory, each with its source |
| `facts.py` | which window on which card: what the decision answers on described machines |
| `escape.py` | strangers' strings on their way into Markdown and HTML |
| `render.py` | facts and template → the block |
| `source.py` | config, card and receipts of a folder or a Hub repo |
"""
