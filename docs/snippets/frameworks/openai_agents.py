"""OpenAI Agents SDK.

The filter goes into the run's configuration. As `hooks` it also learns the provider's usage. With
`Compaction(loops=True)`, tools that went through `compaction.guard([…])` refuse calls in a loop. A
filter cannot send a refused request again: `respool.wrap` around the OpenAI client can.
"""

from pathlib import Path

from agents import Agent, RunConfig, Runner, function_tool

from respool.integrations.openai_agents import Compaction

compaction = Compaction(loops=True)


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


def main() -> None:
    agent = Agent("reader", tools=[*compaction.guard([read_file]), compaction.expand_tool])
    config = RunConfig(call_model_input_filter=compaction)
    print(Runner.run_sync(agent, "Sum up README.md.", run_config=config, hooks=compaction))
