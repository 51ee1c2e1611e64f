"""CrewAI.

CrewAI's own models for Anthropic and OpenAI take an interceptor; it has none for other providers.
"""

from pathlib import Path

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from respool.integrations.crewai import CompactionInterceptor


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text() if Path(path).is_file() else f"No such file: {path}"


def main() -> None:
    compaction = CompactionInterceptor()
    llm = LLM(model="anthropic/claude-sonnet-4-5", interceptor=compaction)
    about = {"role": "Reader", "goal": "Read files", "backstory": "You read carefully."}
    agent = Agent(llm=llm, tools=[read_file, compaction.expand_tool], **about)
    task = Task(description="What is in README.md?", expected_output="Two lines.", agent=agent)
    print(Crew(agents=[agent], tasks=[task]).kickoff())
