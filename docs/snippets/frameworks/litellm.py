"""LiteLLM: SDK and proxy.

`completion()` has no hook: call `CompactionClient().completion()` instead. For LiteLLM's proxy,
name `respool.integrations.litellm.logger` under `callbacks`, or the guardrail
`respool.integrations.litellm.CompactionGuardrail` with `mode: pre_call`; its setting
`retry_policy: {BadRequestErrorRetries: 1}` sends a refused request again as it came.
"""

import json
from pathlib import Path

import litellm

from respool.integrations.litellm import CompactionLogger

litellm.callbacks = [compaction := CompactionLogger()]
schema = {"type": "object", "properties": {"path": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "read_file", "parameters": schema}}]


async def main() -> None:
    messages = [{"role": "user", "content": "What is in README.md?"}]
    while messages[-1]["role"] != "assistant":
        more = {"messages": messages, "tools": tools}
        answer = await litellm.acompletion("anthropic/claude-sonnet-4-5", **more)
        messages.append(message := answer.choices[0].message)
        for call in message.tool_calls or ():
            text = Path(json.loads(call.function.arguments)["path"]).read_text()
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
