"""LangChain, LangGraph, deepagents.

Put the middleware last in the list. With `loops=True` it also refuses calls in a loop.
"""

from pathlib import Path

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic

from respool.integrations.langchain import CompactionMiddleware


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


def main() -> None:
    model = ChatAnthropic(model="claude-sonnet-4-5")
    agent = create_agent(model, [read_file], middleware=[CompactionMiddleware(loops=True)])
    print(agent.invoke({"messages": [("user", "What is in README.md?")]})["messages"][-1].text)
