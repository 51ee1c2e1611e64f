"""smolagents.

The model works for `ToolCallingAgent` and `CodeAgent`. smolagents has no hook around a tool, so
loops are not detected there.
"""

from pathlib import Path

from smolagents import OpenAIModel, ToolCallingAgent, tool

from respool.integrations.smolagents import CompactionModel


@tool
def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: The file.
    """
    return Path(path).read_text()


model = CompactionModel(OpenAIModel("gpt-5.2"))
agent = ToolCallingAgent([read_file, model.expand_tool], model)
if __name__ == "__main__":
    print(agent.run("Sum up README.md."))
