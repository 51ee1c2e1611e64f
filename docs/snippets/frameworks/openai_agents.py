"""OpenAI Agents SDK."""

from agents import Agent, RunConfig, Runner, function_tool

from respool.integrations.openai_agents import Compaction

compaction = Compaction()


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return open(path).read()


agent = Agent(name="reader", tools=[read_file, compaction.expand_tool])
config = RunConfig(call_model_input_filter=compaction)
if __name__ == "__main__":
    print(Runner.run_sync(agent, "Sum up README.md.", run_config=config, hooks=compaction))
