"""A sentence encoder in plain torch: the tokenizer, the network, and the chart of minilm.py."""
