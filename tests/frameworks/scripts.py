"""Scripts of the provider that the tests of several frameworks follow."""

from __future__ import annotations

from typing import Final

from tests.frameworks.agent_runs import MISSING
from tests.integrations.upstream import Ask, read_text, reads, writes

SCRIPTS: Final[dict[str, list[list[Ask]]]] = {
    "reads": reads(12),
    "writes": writes(5),
    "parallel": reads(10, 3),
    "both": [  # a write that is superseded, and beside it a read that is not
        [
            ("write_file", {"path": "/w/out.py", "content": read_text(f"/w/out_{at}.py")}),
            ("read_file", {"path": f"/w/file_{at % 6}.py"}),
        ]
        for at in range(8)
    ],
    "all": writes(4) + reads(8, 2),
    "failing": [*reads(2), [("read_file", {"path": MISSING}), *reads(1)[0]], *reads(8)],
    "loop": [[("read_file", {"path": "/w/file_0.py"})] for _ in range(10)],
}
