"""Pydantic AI."""

from pathlib import Path

from pydantic_ai import Agent

from respool.integrations.pydantic_ai import Compaction


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


def main() -> None:
    agent = Agent(
        "anthropic:claude-sonnet-4-5", tools=[read_file], capabilities=[Compaction(loops=True)]
    )
    print(agent.run_sync("What is in README.md?").output)
