"""Gemini generateContent: codec, rules, repairs and rendering."""
