"""Inspect.

`enable` registers hooks for every model of the process; installing respool alone changes nothing.
"""

from inspect_ai import Task, task
from inspect_ai.approval import ApprovalPolicy
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import text_editor

from respool.integrations.inspect_ai import enable

compaction = enable()


@task
def reader() -> Task:
    tools = use_tools(text_editor(), compaction.expand_tool)
    loops = ApprovalPolicy(compaction.loop_approver(), "*")
    return Task([Sample("What is in README.md?")], solver=[tools, generate()], approval=[loops])
