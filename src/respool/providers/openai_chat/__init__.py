"""OpenAI Chat Completions: codec, rules, repairs and rendering."""
