"""Google ADK."""

from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner

from respool.integrations.adk import CompactionPlugin


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


agent = LlmAgent(name="reader", model="gemini-3-pro", tools=[read_file])
app = App(name="reader", root_agent=agent, plugins=[CompactionPlugin()])


async def main() -> None:
    await InMemoryRunner(app=app).run_debug("What is in README.md?")
