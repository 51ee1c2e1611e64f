"""OpenAI Responses: codec, rules, repairs and rendering."""
