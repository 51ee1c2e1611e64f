"""Microsoft Agent Framework.

A conversation that the provider stores is left alone: `store` must be off. `LoopMiddleware` refuses
calls that repeat without effect.
"""

from pathlib import Path

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient

from respool.integrations.agent_framework import Compaction, LoopMiddleware


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


async def main() -> None:
    compaction = Compaction()
    tools = [read_file, compaction.expand_tool]
    middleware = [LoopMiddleware(), compaction]
    client, options = OpenAIChatClient(model="gpt-5.2"), {"store": False}
    agent = Agent(client, tools=tools, middleware=middleware, default_options=options)
    print(await agent.run("What is in README.md?"))
