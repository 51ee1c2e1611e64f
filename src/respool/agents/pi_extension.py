"""Tool of pi's extension that gives originals back: pi knows no Model Context Protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence

_TOOL = """
  pi.registerTool({
    name: "respool_expand",
    label: "respool",
    description:
      "Get back the original behind a marker [respool … ref REF], exactly, by that REF. " +
      "Fetch only what is needed: give lines or a pattern.",
    parameters: {
      type: "object",
      properties: {
        ref: { type: "string", description: "The reference in the marker, or the whole marker." },
        lines: { type: "string", description: "Only these lines, such as 120:180 or 120:." },
        pattern: { type: "string", description: "Only lines that match this expression." },
      },
      required: ["ref"],
    },
    async execute(_id, params, signal) {
      const words = [...COMMAND.slice(1)];
      for (const name of ["lines", "pattern"])
        if (params[name]) words.push(`--${name}=${params[name]}`);
      const done = await pi.exec(COMMAND[0], [...words, "--", params.ref], { signal });
      if (done.code !== 0) throw new Error(done.stderr.trim() || "There is no such original.");
      return { content: [{ type: "text", text: done.stdout.slice(0, LIMIT) }], details: {} };
    },
  });
"""
_MAX_CHARS = 40_000  # as for the MCP server


def pi_expand_tool(mcp_command: Sequence[str]) -> str:
    """Code of a tool that runs `respool expand` on the store of the MCP server."""
    command = json.dumps(expand_command(mcp_command))
    return _TOOL.strip("\n").replace("LIMIT", str(_MAX_CHARS)).replace("COMMAND", command)


def expand_command(mcp_command: Sequence[str]) -> list[str]:
    """Command that writes an original, from the command of the MCP server."""
    words = [word for word in mcp_command if word != "--expand-only"]
    at = words.index("mcp")
    return [*words[:at], "expand", *words[at + 1 :]]
