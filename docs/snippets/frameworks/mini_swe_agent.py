"""mini-swe-agent.

In a configuration file: `model_class: respool.integrations.mini_swe_agent.CompactionModel`. With
`store: PATH` the agent can run `respool expand REF --store PATH`; with `loops: true` the results
of commands that repeat carry advice.
"""

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment

from respool.integrations.mini_swe_agent import CompactionModel

model = CompactionModel(
    model_name="anthropic/claude-sonnet-4-5", set_cache_control="default_end", policy="safe"
)


def main() -> None:
    templates = {"system_template": "You run commands.", "instance_template": "{{task}}"}
    agent = DefaultAgent(model, LocalEnvironment(), **templates)
    print(agent.run("Sum up README.md."))
