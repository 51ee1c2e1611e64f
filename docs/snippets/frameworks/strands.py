"""Strands.

Strands' default conversation manager drops messages by itself, whatever they hold and whatever the
prompt cache costs. `NullConversationManager` leaves the decision to respool.
"""

from pathlib import Path

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.anthropic import AnthropicModel

from respool.integrations.strands import CompactionPlugin


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


def main() -> None:
    model = AnthropicModel(model_id="claude-sonnet-4-5", max_tokens=4096)
    given = {"plugins": [CompactionPlugin()], "conversation_manager": NullConversationManager()}
    print(Agent(model, tools=[read_file], **given)("What is in README.md?"))
