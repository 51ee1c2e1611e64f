#!/bin/sh
# What this session did so far: its transcript is the newest one.
newest=$(ls -t "${CLAUDE_CONFIG_DIR:-$HOME/.claude}"/projects/*/*.jsonl 2>/dev/null | head -n 1)
[ -n "$newest" ] || { echo "There is no transcript yet."; exit 0; }
exec respool brief "$newest"
