"""Real agents in long sessions: their start, their task and the outcome."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from respool.store import RequestRecord, SQLiteStore
from tests.proxy.certificates import Authority
from tests.support.client_requests import without_breakpoints
from tests.transcripts.agent import SAID, main_or_sub, write_settings
from tests.transcripts.drive import installed
from tests.transcripts.upstream import Answer, Received, Upstream, Usage

SOURCE = Path(__file__).parents[2] / "src"
AGENTS = Path(os.environ.get("AGENTS") or Path(tempfile.gettempdir()) / "agents")
TURNS = 16  # calls of the model's; the seventeenth answer ends the session
LINES = 160  # of each file that is read: some 3,000 tokens
WITHIN = 240.0
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # what ends a session of mini-swe-agent
EXPAND = "respool_expand"
_REF = re.compile(r"\bref ([a-z2-7]{20})\b")
TASK = "Read all gauges, one after another, and say which is the highest."
DONE = Answer("Gauge 7 is the highest.", thought="All were read.")


@dataclass(frozen=True)
class Driven:
    """One agent: what it is, how it is set up, how it is asked."""

    package: str
    command: str
    format: str
    shell: str  # its tool for commands, and the argument that takes one; "": it has no tools
    argument: str
    words: tuple[str, ...]
    variables: Callable[[str], dict[str, str]]
    set_up: Callable[[Path, str], None] = lambda home, url: None
    ends: Answer = DONE
    upstream: str = ""  # the one that respool is told of, where the agent's own settings name none
    named: Callable[[dict[str, Any]], str] = main_or_sub  # the conversation of a request
    maker: str = ""  # the host of its maker's, which it finds on this machine
    prefix: str = ""  # the path of that host; set where respool is told of it as the upstream
    expand: str = ""  # its name of the tool that gives originals back; "": it takes none


@dataclass
class Came:
    """Outcome of a session."""

    status: int
    said: str  # by the agent and by respool, on standard error
    out: str
    main: list[Received]  # what the upstream got of the conversation itself
    others: list[Received]  # titles and the like
    counted: list[dict[str, Any]]
    records: list[RequestRecord]  # of the conversation itself, in order
    seconds: float
    asked: tuple[int, str] | None = None  # the request after the tool's call, and the original


def _codex_set_up(home: Path, url: str) -> None:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(
        'model = "gpt-5"\nmodel_provider = "gauges"\napproval_policy = "never"\n'
        'sandbox_mode = "danger-full-access"\n'
        '[model_providers.gauges]\nname = "gauges"\nenv_key = "GAUGES_KEY"\n'
        f'wire_api = "responses"\nbase_url = "{url}/v1"\n'
    )


def _chatgpt_set_up(home: Path, url: str) -> None:
    """A login of ChatGPT's that nobody gave: with one, Codex sends its bodies compressed."""
    about = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "gauges"}
    claims = {"exp": 4_102_444_800, "https://api.openai.com/auth": about}
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()) for one in ({}, claims)]
    token = f"{'.'.join(part.decode().rstrip('=') for part in parts)}.none"
    tokens = {"id_token": token, "access_token": token, "refresh_token": "", "account_id": "gauges"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    login = {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": now}
    write_settings(home / ".codex" / "auth.json", login)
    # Whatever else it asks ChatGPT for is asked on this machine.
    (home / ".codex" / "config.toml").write_text(f'chatgpt_base_url = "{url}/backend-api/"\n')


def _chatgpt_there_set_up(home: Path, url: str) -> None:
    """A login, and the address of ChatGPT's on this machine: else it would look for a workspace."""
    _chatgpt_set_up(home, url)
    with (home / ".codex" / "config.toml").open("a") as file:
        file.write(f'openai_base_url = "{url}/v1"\n')


def _opencode_set_up(home: Path, url: str, package: str = "@ai-sdk/openai-compatible") -> None:
    model = {"name": "gpt-5", "tool_call": True, "limit": {"context": 200_000, "output": 1_000}}
    provider = {
        "npm": package,
        "name": "gauges",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"gpt-5": model},
    }
    settings = {"provider": {"gauges": provider}, "model": "gauges/gpt-5"}
    write_settings(home / ".config" / "opencode" / "opencode.json", settings)


def _pi_set_up(home: Path, url: str, api: str = "anthropic-messages") -> None:
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 1)
    about = {"name": "gauges", "reasoning": True, "input": ["text"], "cost": cost}
    limits = {"contextWindow": 200_000, "maxTokens": 8192}
    provider = {
        "baseUrl": url if api == "anthropic-messages" else f"{url}/v1",
        "api": api,
        "apiKey": "none",
        "models": [{"id": "claude-sonnet-4-5", **about, **limits}],
    }
    write_settings(home / ".pi" / "agent" / "models.json", {"providers": {"gauges": provider}})


def _continue_set_up(home: Path, url: str, provider: str = "openai") -> None:
    """A configuration with a comment, a file of its own, and a model that is not used."""
    folder = home / ".continue"
    folder.mkdir()
    (folder / "rule.yaml").write_text(
        "name: rule\nversion: 0.0.1\nschema: v1\nrules: [Be brief about gauges.]\n"
    )
    base = f"    apiBase: {url}/v1 # of the gauges\n" if url else ""
    (folder / "config.yaml").write_text(
        "name: gauges\nversion: 0.0.1\nschema: v1\nmodels:\n"
        f"  - name: gauges\n    provider: {provider}\n    model: claude-sonnet-4-5\n{base}"
        '    apiKey: "none"\n    capabilities: [tool_use]\n'
        "  - {name: other, provider: openai, model: gpt-4o, apiKey: none, roles: [edit]}\n"
        "rules:\n  - uses: ./rule.yaml\n"
    )


def _gemini_set_up(home: Path, _url: str) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    write_settings(home / ".gemini" / "settings.json", settings)


def _aider_set_up(home: Path, _url: str) -> None:
    """Write its user's input, and an empty price list, which it would fetch otherwise."""
    typed = (f"/run cat gauge_{n:02}.txt\n/ask Now gauge {n}.\n" for n in range(1, TURNS + 1))
    (home / "typed.txt").write_text("".join(typed))
    write_settings(home / ".aider/caches/model_prices_and_context_window.json", {"none": {}})


def _aider(model: str, format: str, variables: Callable[[str], dict[str, str]]) -> Driven:
    still = ("--no-git", "--no-pretty", "--no-check-update", "--analytics-disable")
    words = ("--yes-always", "--no-show-model-warnings", "--no-show-release-notes", *still)
    return Driven(
        "aider-chat==0.86.2",
        "aider",
        format,
        "",
        "",
        (
            "--model",
            model,
            "--edit-format",
            "ask",
            "--max-chat-history-tokens",
            "1000000",
            "--load",
            "../home/typed.txt",
            *words,
            "--message",
            TASK,
        ),
        lambda url: {"LITELLM_LOCAL_MODEL_COST_MAP": "True", **variables(url)},
        _aider_set_up,
        ends=Answer("Gauge 7 is the highest."),
        named=lambda _: "main",
    )


def _copilot(kind: str, wire: str, format: str) -> Driven:
    told = {
        "COPILOT_PROVIDER_TYPE": kind,
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": "gpt-5" if kind == "openai" else "claude-sonnet-4-5",
        "COPILOT_OFFLINE": "true",
        **({"COPILOT_PROVIDER_WIRE_API": wire} if wire else {}),
    }
    return Driven(
        "@github/copilot@1.0.102",
        "copilot",
        format,
        "bash",
        "command",
        ("--allow-all-tools", "-p", TASK),
        lambda url: {
            **told,
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1" if kind == "openai" else url,
        },
        expand="respool-respool_expand",
    )


DRIVEN: dict[str, Driven] = {
    "claude": Driven(
        "@anthropic-ai/claude-code@2.1.325", "claude", "anthropic", "Bash", "command",
        ("-p", TASK, "--allowedTools", "Bash", "mcp__respool"),
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        expand="mcp__respool__respool_expand",
    ),
    "codex": Driven(
        "@openai/codex@0.166.0", "codex", "openai-responses", "exec_command", "cmd",
        ("exec", "--json", "--skip-git-repo-check", TASK),
        lambda _: {"GAUGES_KEY": "none"},
        _codex_set_up,
        expand="mcp__respool.respool_expand",
    ),
    "codex, its own provider": Driven(
        "@openai/codex@0.166.0", "codex", "openai-responses", "exec_command", "cmd",
        ("exec", "--json", "--skip-git-repo-check", "-m", "gpt-5",
         "--dangerously-bypass-approvals-and-sandbox", TASK),
        lambda _: {"CODEX_API_KEY": "none"},
        upstream="openai",
    ),
    "codex, ChatGPT's login": Driven(
        "@openai/codex@0.166.0", "codex", "openai-responses", "exec_command", "cmd",
        ("exec", "--json", "--skip-git-repo-check", "-m", "gpt-5",
         "--dangerously-bypass-approvals-and-sandbox", TASK),
        lambda _: {},
        _chatgpt_set_up,
        upstream="openai",
    ),
    "opencode": Driven(
        "opencode-ai@1.18.33", "opencode", "openai-chat", "bash", "command",
        ("run", TASK),
        lambda _: {"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        _opencode_set_up,
        expand="respool_respool_expand",
    ),
    "opencode, its own provider": Driven(
        "opencode-ai@1.18.33", "opencode", "anthropic", "bash", "command",
        ("run", "--model", "anthropic/claude-sonnet-4-5", TASK),
        lambda _: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "ANTHROPIC_API_KEY": "none"},
        upstream="anthropic",
    ),
    "opencode, Responses": Driven(
        "opencode-ai@1.18.33", "opencode", "openai-responses", "bash", "command",
        ("run", TASK),
        lambda _: {"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        lambda home, url: _opencode_set_up(home, url, "@ai-sdk/openai"),
    ),
    "pi": Driven(
        "@mariozechner/pi-coding-agent@0.73.1", "pi", "anthropic", "bash", "command",
        ("--provider", "gauges", "--model", "claude-sonnet-4-5", "-p", TASK),
        lambda _: {"PI_OFFLINE": "1"},
        _pi_set_up,
        expand="respool_expand",
    ),
    "pi, Chat Completions": Driven(
        "@mariozechner/pi-coding-agent@0.73.1", "pi", "openai-chat", "bash", "command",
        ("--provider", "gauges", "--model", "claude-sonnet-4-5", "-p", TASK),
        lambda _: {"PI_OFFLINE": "1"},
        lambda home, url: _pi_set_up(home, url, "openai-completions"),
    ),
    "pi, its own provider": Driven(
        "@mariozechner/pi-coding-agent@0.73.1", "pi", "openai-responses", "bash", "command",
        ("--provider", "openai", "--model", "gpt-5.1", "-p", TASK),
        lambda _: {"PI_OFFLINE": "1", "OPENAI_API_KEY": "none"},
        upstream="openai",
    ),
    "gemini": Driven(
        "@google/gemini-cli@0.61.0", "gemini", "gemini", "run_shell_command", "command",
        ("-m", "gemini-2.5-pro", "--yolo", "-p", TASK),
        lambda url: {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        _gemini_set_up,
    ),
    "qwen": Driven(
        "@qwen-code/qwen-code@0.15.10", "qwen", "openai-chat", "run_shell_command", "command",
        ("--yolo", "--auth-type", "openai", "-p", TASK),
        lambda url: {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_MODEL": "qwen3-coder",
        },
        expand="mcp__respool__respool_expand",
    ),
    "copilot": _copilot("openai", "completions", "openai-chat"),
    "copilot, Responses": _copilot("openai", "responses", "openai-responses"),
    "copilot, Claude": _copilot("anthropic", "", "anthropic"),
    "continue": Driven(
        "@continuedev/cli@1.5.47", "cn", "openai-chat", "Bash", "command",
        ("--auto", "-p", TASK),
        lambda _: {"CONTINUE_TELEMETRY_ENABLED": "0"},
        _continue_set_up,
        expand="respool_expand",
    ),
    "continue, Claude": Driven(
        "@continuedev/cli@1.5.47", "cn", "anthropic", "Bash", "command",
        ("--auto", "-p", TASK),
        lambda _: {"CONTINUE_TELEMETRY_ENABLED": "0"},
        lambda home, url: _continue_set_up(home, url, "anthropic"),
    ),
    "mini": Driven(
        "mini-swe-agent==2.4.6", "mini", "openai-chat", "bash", "command",
        ("-y", "--exit-immediately", "-m", "openai/gpt-5", "-o", "run.traj.json", "-t", TASK),
        lambda url: {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "none",
        },
        ends=Answer("Gauge 7 is the highest.", (("bash", {"command": SUBMIT}),)),
    ),
    "aider": _aider(
        "openai/gpt-5", "openai-chat",
        lambda url: {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"},
    ),
    "aider, Claude": _aider(
        "anthropic/claude-sonnet-4-5", "anthropic",
        lambda url: {"ANTHROPIC_API_BASE": url, "ANTHROPIC_API_KEY": "none"},
    ),
}  # fmt: skip

LOGGED_IN = {
    "codex, ChatGPT's login": replace(
        DRIVEN["codex, ChatGPT's login"], set_up=_chatgpt_there_set_up, upstream=""
    )
}
# Agents that go to their makers' own host, as they would without any setting.
_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
AT_MAKER: dict[str, Driven] = {
    "claude": replace(
        DRIVEN["claude"],
        variables=lambda _: {"ANTHROPIC_API_KEY": "none", **_QUIET},
        maker="api.anthropic.com",
    ),
    "claude, a login": replace(
        DRIVEN["claude"],
        variables=lambda _: {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-none", **_QUIET},
        maker="api.anthropic.com",
    ),
    "codex": replace(DRIVEN["codex, its own provider"], upstream="", maker="api.openai.com"),
    "opencode": replace(
        DRIVEN["opencode, its own provider"], upstream="", maker="api.anthropic.com"
    ),
    "pi": replace(DRIVEN["pi, its own provider"], upstream="", maker="api.openai.com"),
    "gemini": replace(
        DRIVEN["gemini"],
        variables=lambda _: {"GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        maker="generativelanguage.googleapis.com",
    ),
    "qwen": replace(
        DRIVEN["qwen"],
        variables=lambda _: {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "qwen3-coder"},
        maker="dashscope.aliyuncs.com",
        upstream="openai",
        prefix="/compatible-mode/v1",
    ),
    "continue": replace(
        DRIVEN["continue, Claude"],
        set_up=lambda home, _: _continue_set_up(home, "", "anthropic"),
        maker="api.anthropic.com",
    ),
    "mini": replace(
        DRIVEN["mini"],
        variables=lambda url: {
            name: value
            for name, value in DRIVEN["mini"].variables(url).items()
            if name != "OPENAI_BASE_URL"
        },
        maker="api.openai.com",
    ),
}

# Claude Code on clouds, with the hosts that they have.
IN_CLOUDS: dict[str, Driven] = {
    "Bedrock": replace(
        AT_MAKER["claude"],
        variables=lambda _: {
            "CLAUDE_CODE_USE_BEDROCK": "1",
            "AWS_REGION": "us-east-1",
            "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        maker="bedrock-runtime.us-east-1.amazonaws.com",
    ),
    "Mantle": replace(
        AT_MAKER["claude"],
        variables=lambda _: {
            "CLAUDE_CODE_USE_MANTLE": "1",
            "AWS_REGION": "us-east-1",
            "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        maker="bedrock-mantle.us-east-1.api.aws",
    ),
    "Vertex": replace(
        AT_MAKER["claude"],
        variables=lambda _: {
            "CLAUDE_CODE_USE_VERTEX": "1",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
            "CLOUD_ML_REGION": "us-east5",
            "ANTHROPIC_VERTEX_PROJECT_ID": "gauges",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        maker="us-east5-aiplatform.googleapis.com",
    ),
    "Foundry": replace(
        AT_MAKER["claude"],
        variables=lambda _: {
            "CLAUDE_CODE_USE_FOUNDRY": "1",
            "ANTHROPIC_FOUNDRY_RESOURCE": "gauges",
            "ANTHROPIC_FOUNDRY_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        maker="gauges.services.ai.azure.com",
    ),
}


class Metered(Upstream):
    """Reports the usage that a provider with a cache would: four bytes are a token."""

    def take(self, path: str, body: dict[str, Any]) -> tuple[Received, Answer]:
        """Keeps a request, and finds its answer."""
        taken, answer = super().take(path, body)
        before = [one for one in self.received[:-1] if one.conversation == taken.conversation]
        whole = _wire(body)
        read = _common(_wire(before[-1].body), whole) if before else 0
        taken.usage = Usage(0, read // 4, (len(whole) - read) // 4, 0, 40)
        return taken, answer


class Expanding(Metered):
    """Asks once for an original that is in a request no more, by the agent's name of the tool."""

    store: Path
    expand: str
    asked: tuple[int, str] | None = None  # the request that was answered so, and the original

    def take(self, path: str, body: dict[str, Any]) -> tuple[Received, Answer]:
        """Keeps a request, and finds its answer."""
        taken, answer = super().take(path, body)
        if not answer.calls or answer.calls[0][0] != EXPAND:
            return taken, answer
        text = json.dumps(body, ensure_ascii=False)
        store = SQLiteStore(self.store, create=False)
        try:
            known = {ref: store.original(ref, None) or "" for ref in _REF.findall(text)}
        finally:
            store.close()
        ref = next(ref for ref, held in known.items() if missing_lines(held, text) > LINES // 2)
        self.asked = len([one for one in self.received if one.conversation == "main"]), known[ref]
        return taken, replace(answer, calls=((self.expand, {"ref": ref}),))


def missing_lines(original: str, text: str) -> int:
    """Number of an original's lines that are not in a text."""
    return sum(line not in text for line in original.splitlines())


def _wire(body: dict[str, Any]) -> bytes:
    """Fields of a request that a cache depends on: its history last, without breakpoints."""
    fields = ("messages", "input", "contents")
    head = {key: body[key] for key in ("system", "systemInstruction", "tools") if key in body}
    history = [body[key] for key in fields if key in body]
    return json.dumps([without_breakpoints(head), without_breakpoints(history)]).encode()


def _common(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), len(one))


def missing(name: str) -> str | None:
    """Reason that an agent cannot be driven here; None: it can, and is installed."""
    return unavailable(DRIVEN[name])


def unavailable(one: Driven) -> str | None:
    """Reason that an agent cannot be driven here; None: it can, and is installed."""
    of_node = "==" not in one.package
    if of_node and (shutil.which("node") is None or shutil.which("npm") is None):
        return "there is no Node with npm here to install agents with"
    try:
        bin = _bin(one)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{one.package} cannot be installed: {error}"
    if not (bin / one.command).exists():
        return f"{one.package} is not whole in {AGENTS}: delete it there"
    return None


def _bin(one: Driven) -> Path:
    folder = installed(one.package, AGENTS)
    return folder / "bin" if "==" in one.package else folder / "node_modules" / ".bin"


def _file(number: int) -> str:
    """Content of a file of gauge readings, different for each file."""
    lines = (
        f"{number:02}:{n:03} the gauge at mile {n * 37 % 211} reads {n * number * 13 % 9973} mm"
        for n in range(LINES)
    )
    return "\n".join(lines) + "\n"


def script(one: Driven, turns: int) -> list[Answer]:
    """Files read one after another; two of them a second time, and one that is not there.

    Who has no tools is told what its user reads.
    """
    if not one.shell:
        return [*(Answer(f"Gauge {at} is read.") for at in range(1, turns + 1)), one.ends]
    asked = [f"cat gauge_{n:02}.txt" for n in range(1, turns + 1)]
    asked[5], asked[9], asked[11] = asked[2], "cat gauge_99.txt", asked[4]
    calls = [((one.shell, {one.argument: text, **SAID[one.shell]}),) for text in asked]
    said = [
        Answer(f"Now gauge {at}.", call, f"Gauge {at} comes next.")
        for at, call in enumerate(calls, 1)
    ]
    return [*said, one.ends]


def drive(
    name: str | Driven,
    folder: Path,
    *options: str,
    turns: int = TURNS,
    through: bool = True,
    expands: bool = False,
) -> Came:
    """One session of an agent in a home and a folder of its own; through `respool run`, or not."""
    one = DRIVEN[name] if isinstance(name, str) else name
    home, work, store = folder / "home", folder / "work", folder / "respool.db"
    for place in (home, work):
        place.mkdir(parents=True)
    for number in range(1, turns + 1):
        (work / f"gauge_{number:02}.txt").write_text(_file(number))
    answers = script(one, turns)
    upstream = Metered({"main": answers}, one.named)
    if expands:
        answers[-1:-1] = [Answer("That again.", ((EXPAND, {}),))]
        upstream = Expanding({"main": answers}, one.named)
        upstream.store, upstream.expand = store, one.expand
    world = _world(one, home, store)
    proxied = one.maker and not (through and one.prefix)
    if proxied:
        authority = Authority()
        upstream.tls[one.maker] = authority.context(folder, one.maker)
        trusted = str(authority.write(folder / "authority.pem"))
        world |= dict.fromkeys(("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"), trusted)
    server = upstream.serve()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        one.set_up(home, url)
        world |= {**one.variables(url), **({"HTTPS_PROXY": url} if proxied else {})}
        told = ("--upstream", f"{one.upstream}={url}{one.prefix}") if one.upstream else ()
        respool = (sys.executable, "-m", "respool", "run", *told, *options, "--")
        began = time.monotonic()
        done = subprocess.run(
            [*(respool if through else ()), one.command, *one.words],
            cwd=work,
            env=world,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
    finally:
        server.shutdown()
        server.server_close()
    main = [taken for taken in upstream.received if taken.conversation == "main"]
    others = [taken for taken in upstream.received if taken.conversation != "main"]
    records = _records(store, len(main))
    return Came(
        done.returncode,
        done.stderr,
        done.stdout,
        main,
        others,
        upstream.counted,
        records,
        time.monotonic() - began,
        upstream.asked if isinstance(upstream, Expanding) else None,
    )


def _world(one: Driven, home: Path, store: Path) -> dict[str, str]:
    return {
        "PATH": f"{_bin(one)}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "TZ": "UTC",
        "PYTHONPATH": str(SOURCE),
        "RESPOOL_STORE": str(store),
    }


def _records(path: Path, count: int) -> list[RequestRecord]:
    """The records of the conversation that had so many requests."""
    if not path.exists():
        return []
    store = SQLiteStore(path, create=False)
    try:
        known = store.conversations(None)
        every = [store.requests(one.name, None) for one in known]
    finally:
        store.close()
    longest = max(every, key=len, default=[])
    if not longest or len(longest) == count:
        return longest
    raise AssertionError(f"{count} requests, but records {[len(records) for records in every]}")


def shown(came: Came) -> str:
    """A session in a line."""
    edits = came.records[-1].edited if came.records else 0
    epochs = came.records[-1].epochs if came.records else 0
    sizes = [len(json.dumps(taken.body)) for taken in came.main]
    return (
        f"{len(came.main)} requests and {len(came.others)} beside, {len(came.counted)} counted; "
        f"{edits} edits in {epochs} epochs; last request {sizes[-1]:,} bytes; {came.seconds:.1f} s"
    )
