"""How the proxy stands, for who watches it: numbers, spans, lines, sums."""
