#!/bin/sh
# Gives Claude Code a brief around its own compaction; without respool it says nothing.
command -v respool >/dev/null 2>&1 || exit 0
exec respool hook claude
