"""Provider and upstream of a request, and how a base URL and a path join."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from respool.proxy.app import endpoint_for, is_own
from respool.proxy.asgi import ProxyError, Request
from respool.proxy.auth import without_foreign_keys
from respool.proxy.router import Route, route_for, route_of, select_upstream
from respool.proxy.server_options import (
    ServerOptions,
    StartupError,
    Upstream,
    Upstreams,
    upstreams_of,
    validated,
)


def request(method: str, path: str, query: str = "", **headers: str) -> Request:
    pairs = tuple((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())
    return Request(method, path, query, pairs, dict(pairs))


GEMINI = "/v1beta/models/gemini-3-pro"
GENERATE = f"{GEMINI}:generateContent"
ROUTES = [
    ("POST", "/v1/messages", Route("anthropic", "anthropic")),
    ("POST", "/v1/messages/count_tokens", Route("anthropic", "anthropic", "count")),
    ("POST", "/v1/chat/completions", Route("openai", "openai-chat")),
    ("POST", "/v1/responses", Route("openai", "openai-responses")),
    ("POST", "/v1/responses/input_tokens", Route("openai", "openai-responses", "count")),
    ("POST", "/v1/responses/compact", Route("openai")),
    (
        "POST",
        f"{GEMINI}:generateContent",
        Route("gemini", "gemini", "generate", "gemini-3-pro", False),
    ),
    (
        "POST",
        f"{GEMINI}:streamGenerateContent",
        Route("gemini", "gemini", "generate", "gemini-3-pro", True),
    ),
    ("POST", f"{GEMINI}:countTokens", Route("gemini", "gemini", "count", "gemini-3-pro", False)),
    (
        "POST",
        "/v1/models/a%2Db:generateContent",
        Route("gemini", "gemini", "generate", "a-b", False),
    ),
    ("GET", "/v1/messages", Route("openai")),
    ("POST", "/v1/messages/", Route("openai")),
    ("POST", "/v1/messages/batches", Route("openai")),
    ("POST", "/v1/responses/resp_1/cancel", Route("openai")),
    ("POST", f"{GEMINI}:embedContent", Route("openai")),
    ("POST", "/v1beta/models/a/b:generateContent", Route("openai")),
    ("GET", f"{GEMINI}:generateContent", Route("openai")),
    ("HEAD", "/", Route("openai")),
]


@pytest.mark.parametrize(("method", "path", "route"), ROUTES)
def test_paths(method: str, path: str, route: Route):
    assert route_of(request(method, path)) == route


KEYS = [
    ({"anthropic_version": "2023-06-01", "authorization": "Bearer x"}, "", "anthropic"),
    ({"x_api_key": "k"}, "", "anthropic"),
    ({"authorization": "Bearer sk-ant-oat01-x"}, "", "anthropic"),
    ({"x_goog_api_key": "k"}, "", "gemini"),
    ({}, "alt=sse&key=k", "gemini"),
    ({"authorization": "Bearer AIzaSy"}, "", "gemini"),
    ({"authorization": "Bearer AQ.Ab8R"}, "", "gemini"),
    ({"authorization": "Bearer ya29.a0"}, "", "gemini"),
    ({"authorization": "Bearer sk-proj-1"}, "", "openai"),
    ({"authorization": "sk-ant-1"}, "", "anthropic"),  # without its scheme
    ({"authorization": "bearer   sk-ant-1"}, "", "anthropic"),
    ({"x_goog_api_key": "sk-ant-1"}, "", "anthropic"),
    ({"api_key": "AIzaSy"}, "", "gemini"),
    ({}, "monkey=1&x=key=", "openai"),
    ({}, "", "openai"),
]


@pytest.mark.parametrize(
    ("names", "provider"),
    [
        ("content-type, X-Api-Key", "anthropic"),
        ("anthropic-version", "anthropic"),
        ("x-goog-api-key,content-type", "gemini"),
        ("authorization", "openai"),
    ],
)
def test_what_a_browser_asks_first_goes_where_the_request_will(names: str, provider: str):
    """It brings no key, only the names of the headers that will."""
    asked = request("OPTIONS", "/v1/x", access_control_request_headers=names)
    assert route_for(asked, Upstreams())[0] == Route(provider)  # type: ignore[arg-type]
    asked = request("GET", "/v1/x", access_control_request_headers=names)
    assert route_for(asked, Upstreams())[0] == Route("openai")


@pytest.mark.parametrize(("headers", "query", "provider"), KEYS)
def test_all_else_goes_where_its_key_belongs(headers: dict[str, str], query: str, provider: str):
    asked = request("GET", "/v1/models", query, **headers)
    route, upstream = route_for(asked, Upstreams())
    assert route == Route(provider)  # type: ignore[arg-type]
    assert upstream == getattr(Upstreams(), provider)


@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/chat/completions", "/v1/responses", GENERATE]
)
@pytest.mark.parametrize(
    ("headers", "query", "owner"),
    [
        ({"authorization": "Bearer sk-ant-1"}, "", "anthropic"),
        ({"x_api_key": "k"}, "", "anthropic"),
        ({"x_goog_api_key": "k"}, "", "gemini"),
        ({}, "key=k", "gemini"),
        ({"authorization": "Bearer AIzaSy"}, "", "gemini"),
        ({"authorization": "Bearer sk-proj-1"}, "", "openai"),
        ({"x_api_key": "sk-svcacct-1", "anthropic_version": "2023-06-01"}, "", "openai"),
        ({"authorization": "Bearer some-token"}, "", None),
        ({"authorization": "Bearer some-token", "x_api_key": "k"}, "", None),
        ({}, "", None),
    ],
)
def test_a_key_in_anothers_format_goes_to_its_own_provider_unread(
    path: str, headers: dict[str, str], query: str, owner: str | None
):
    """If the user chose the upstream, the key is for that."""
    asked = request("POST", path, query, **headers)
    plain = route_of(asked)
    there = plain if owner in (None, plain.provider) else Route(owner)  # type: ignore[arg-type]
    found, upstream = route_for(asked, Upstreams())
    assert found == there
    assert upstream == getattr(Upstreams(), there.provider)
    chosen = upstreams_of(
        [f"{name}=http://localhost:1" for name in ("anthropic", "openai", "gemini")]
    )
    assert route_for(asked, chosen) == (plain, chosen.of_provider(plain.provider))


def test_of_two_keys_the_formats_own_counts():
    asked = request("POST", "/v1/messages", x_api_key="sk-ant-1", authorization="Bearer sk-proj-1")
    assert route_for(asked, Upstreams())[1] == Upstreams().anthropic


def test_no_key_reaches_another_providers_host():
    asked = request("POST", "/v1/chat/completions", authorization="Bearer sk-ant-1")
    assert route_for(asked, Upstreams()) == (Route("anthropic"), Upstreams().anthropic)
    chosen = upstreams_of(["openai-chat=http://localhost:4000"])  # the user says where it goes
    assert route_for(asked, chosen) == (Route("openai", "openai-chat"), chosen.openai_chat)


# --- clouds ------------------------------------------------------------------------------------

SONNET = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = f"arn:aws:bedrock:us-east-1:1:inference-profile/{SONNET}"
MODEL = f"/model/{SONNET}"
PLACE = "projects/p-1/locations/us-east5"
CLAUDE = f"/v1/{PLACE}/publishers/anthropic/models/claude-sonnet-4-5@20250929"
GOOGLE = f"{PLACE}/publishers/google/models/gemini-3-pro"
DEPLOYED = "/openai/deployments/my%20gpt/chat/completions"
CLOUD_ROUTES = [
    (f"{MODEL}/invoke", Route("bedrock", "anthropic", "generate", SONNET, False)),
    (f"/model/{quote(SONNET)}/invoke", Route("bedrock", "anthropic", "generate", SONNET, False)),
    (
        f"/model/{quote(ARN, safe='')}/invoke-with-response-stream",
        Route("bedrock", "anthropic", "generate", ARN, True),
    ),
    (f"{MODEL}/converse", Route("bedrock")),
    (f"{MODEL}/converse-stream", Route("bedrock")),
    (f"{MODEL}/count-tokens", Route("bedrock")),
    ("/inference-profiles", Route("bedrock")),
    (
        f"{CLAUDE}:rawPredict",
        Route("vertex", "anthropic", "generate", "claude-sonnet-4-5@20250929", False),
    ),
    (
        f"{CLAUDE.replace('@', '%40')}:streamRawPredict",
        Route("vertex", "anthropic", "generate", "claude-sonnet-4-5@20250929", True),
    ),
    (
        f"/{PLACE}/publishers/anthropic/models/count-tokens:rawPredict",
        Route("vertex", "anthropic", "count"),
    ),
    (f"{CLAUDE}:predict", Route("vertex")),
    (
        f"/v1beta1/{GOOGLE}:streamGenerateContent",
        Route("vertex", "gemini", "generate", "gemini-3-pro", True),
    ),
    (f"/v1/{GOOGLE}:countTokens", Route("vertex", "gemini", "count", "gemini-3-pro", False)),
    (
        "/v1/publishers/google/models/gemini-3-pro:generateContent",
        Route("vertex", "gemini", "generate", "gemini-3-pro", False),
    ),
    (f"/v1/{GOOGLE}:rawPredict", Route("vertex")),
    (f"/v1/{PLACE}/endpoints/openapi/chat/completions", Route("vertex")),
    (DEPLOYED, Route("azure", "openai-chat", "generate", "my gpt")),
    ("/openai/v1/chat/completions", Route("azure", "openai-chat")),
    ("/openai/responses", Route("azure", "openai-responses")),
    ("/openai/v1/responses", Route("azure", "openai-responses")),
    ("/openai/deployments/d/embeddings", Route("azure")),
    ("/anthropic/v1/messages", Route("azure", "anthropic")),
    ("/anthropic/v1/messages/count_tokens", Route("azure", "anthropic", "count")),
    ("/anthropic/v1/models", Route("azure")),
]


@pytest.mark.parametrize(("path", "route"), CLOUD_ROUTES)
def test_paths_of_clouds(path: str, route: Route):
    chosen = upstreams_of([f"{name}=http://{name}" for name in ("bedrock", "vertex", "azure")])
    asked = request("POST", path, authorization="Bearer some-token")
    assert route_of(asked) == route
    assert route_for(asked, chosen) == (route, chosen.of_provider(route.provider))
    asked = request("GET", path)
    assert route_for(asked, chosen) == (
        Route(route.provider),
        chosen.of_provider(route.provider),
    )


VERTEX_HOSTS = [
    ("/v1/{}", "us-east5", "https://us-east5-aiplatform.googleapis.com/v1/"),
    ("/{}", "europe-west12", "https://europe-west12-aiplatform.googleapis.com/v1/"),
    ("/v1beta1/{}", "global", "https://aiplatform.googleapis.com/v1beta1/"),
    ("/v1/{}", "eu", "https://aiplatform.eu.rep.googleapis.com/v1/"),
]


@pytest.mark.parametrize(("form", "location", "start"), VERTEX_HOSTS)
def test_a_location_names_vertex_host(form: str, location: str, start: str):
    path = form.format(CLAUDE.removeprefix("/v1/").replace("us-east5", location))
    asked = request("POST", f"{path}:rawPredict", authorization="Bearer ya29.x", x_api_key="k")
    route, upstream = route_for(asked, Upstreams())
    assert (route.provider, upstream.is_custom) == ("vertex", False)
    assert upstream.url(asked.path, "").startswith(f"{start}projects/p-1/locations/{location}/")
    kept = without_foreign_keys(asked, route.provider)
    assert kept.named == {b"authorization": b"Bearer ya29.x"}  # Google receives no other key


UNKNOWN_HOSTS = [
    (f"{MODEL}/invoke", {}, "--upstream bedrock=https://bedrock-runtime.REGION"),
    (f"{MODEL}/converse", {"authorization": "Bearer bedrock-api-key-x"}, "bedrock="),
    ("/v1/messages", {"authorization": "AWS4-HMAC-SHA256 Credential=A/b"}, "bedrock="),
    ("/v1/x", {"authorization": "Bearer ABSKQmVkcm9ja0FQSUtleS1x"}, "bedrock="),
    (DEPLOYED, {"api_key": "k"}, "azure=https://RESOURCE"),
    ("/openai/files", {"api_key": "k"}, "azure="),
    ("/anthropic/v1/messages", {"x_api_key": "k"}, "azure="),
    (f"{CLAUDE.replace('us-east5', 'evil.com%23')}:rawPredict", {}, "vertex="),
    (f"{CLAUDE.replace('us-east5', 'evil.com')}:rawPredict", {}, "vertex="),
]


@pytest.mark.parametrize(("path", "headers", "option"), UNKNOWN_HOSTS)
def test_no_key_goes_to_a_cloud_that_nobody_named(path: str, headers: dict[str, str], option: str):
    with pytest.raises(ProxyError, match=re.escape(option)):
        route_for(request("POST", path, **headers), Upstreams())


def test_a_gateway_may_have_the_paths_of_azure():
    chosen = upstreams_of(["openai=https://api.groq.com", "anthropic=https://api.deepseek.com"])
    asked = request("POST", "/openai/v1/chat/completions", authorization="Bearer gsk_1")
    assert route_for(asked, chosen) == (Route("openai", "openai-chat"), chosen.openai_chat)
    asked = request("POST", "/anthropic/v1/messages", x_api_key="k")
    assert route_for(asked, chosen) == (Route("anthropic", "anthropic"), chosen.anthropic)


def test_bedrock_has_a_host_for_models_and_one_for_the_rest():
    chosen = upstreams_of(["bedrock=https://bedrock-runtime.eu-west-1.amazonaws.com"])
    key = {"authorization": "Bearer bedrock-api-key-x"}
    assert chosen.bedrock is not None
    for path in (f"{MODEL}/invoke", "/openai/v1/chat/completions"):
        assert route_for(request("POST", path, **key), chosen)[1] == chosen.bedrock
    listed = route_for(request("GET", "/inference-profiles", **key), chosen)[1]
    assert listed.origin == "https://bedrock.eu-west-1.amazonaws.com"


GATE = Upstream("http://gate", "/v1", is_custom=True, replaces_version=True)


@pytest.mark.parametrize(("method", "path", "route"), ROUTES)
def test_an_upstream_is_reached_by_its_name(method: str, path: str, route: Route):
    ups = upstreams_of(["openai-chat=http://chosen"], named={"a.gate": GATE, "b": "openai-chat"})
    for name, there in (("a.gate", GATE), ("b", ups.openai_chat)):
        asked = request(method, f"/respool-upstream/{name}{path}", authorization="Bearer k")
        plain, found, upstream = select_upstream(asked, ups)
        assert (plain.path, found, upstream) == (path, route, there)
    asked = request(method, path)
    assert select_upstream(asked, ups) == (asked, *route_for(asked, ups))
    with pytest.raises(ProxyError, match="no upstream with the name"):
        select_upstream(request(method, f"/respool-upstream/none{path}"), ups)


JOINS = [
    ("https://h", "/v1/messages", "https://h/v1/messages"),
    ("https://h/", "/v1/messages", "https://h/v1/messages"),
    ("https://h/api", "/v1/chat/completions", "https://h/api/v1/chat/completions"),
    ("https://h/api/v1", "/v1/chat/completions", "https://h/api/v1/chat/completions"),
    ("https://h/api/v1/", "/v1/chat/completions", "https://h/api/v1/chat/completions"),
    ("https://h/paas/v4", "/v1/chat/completions", "https://h/paas/v4/chat/completions"),
    ("https://h/v1beta", "/v1/models/m:countTokens", "https://h/v1beta/models/m:countTokens"),
    ("https://h/v1", "/v1", "https://h/v1"),
    ("https://h/v1", "/v1x/y", "https://h/v1/v1x/y"),
    ("https://h/v1", "/healthz", "https://h/v1/healthz"),
    ("https://h/dev1", "/v1/models", "https://h/dev1/v1/models"),
    ("http://[::1]:8080/x", "//evil.com/@y", "http://[::1]:8080/x//evil.com/@y"),
]


@pytest.mark.parametrize(("url", "path", "joined"), JOINS)
def test_joining(url: str, path: str, joined: str):
    upstream = upstreams_of([f"gemini={url}"]).gemini
    assert upstream.url(path, "") == joined
    assert upstream.url(path, "a=%20") == f"{joined}?a=%20"


def test_openai_stands_for_both_its_formats():
    both = upstreams_of(["openai=http://a", "openai-chat=http://b"])
    assert [one.origin for one in (both.openai, both.openai_chat, both.openai_responses)] == [
        "http://a",
        "http://b",
        "http://a",
    ]
    one = upstreams_of(["openai-chat=http://b"])
    assert one.openai.origin == "http://b"  # whoever has a key for that, has none for OpenAI
    assert one.openai_responses == Upstream("https://api.openai.com")


@pytest.mark.parametrize(
    "text",
    [
        "openai",
        "sagemaker=https://h",
        "openai=ftp://h",
        "openai=h:80",
        "openai=https://user:pw@h",
        "openai=https://h/?x=1",
        "openai=https://",
        "openai=http://h:99999",
        "openai=http://[::1",
    ],
)
def test_what_is_no_upstream_is_said_in_a_sentence(text: str):
    with pytest.raises(StartupError, match=r"^[A-Z'].*\.$"):
        upstreams_of([text])


@pytest.mark.parametrize(
    "config",
    [
        ServerOptions(host="0.0.0.0"),
        ServerOptions(host="192.168.1.1"),
        ServerOptions(host="example.com"),
        ServerOptions(host="::"),
        ServerOptions(token="short"),
        ServerOptions(token="with/a/slash/in/it/aaaa"),
        ServerOptions(token=""),
    ],
)
def test_what_is_not_safe_is_not_served(config: ServerOptions):
    with pytest.raises(StartupError, match=r"\.$"):
        validated(config)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str):
    assert validated(ServerOptions(host=host)).host == host
    assert validated(ServerOptions(host="0.0.0.0", token="a-token-of-enough-length")).token


OWN = [
    ("GET", "/", {"accept": "text/html,*/*"}, True),
    ("GET", "/", {"accept": "*/*"}, False),
    ("HEAD", "/", {"accept": "text/html"}, False),
    ("GET", "/healthz", {}, True),
    ("GET", "/metrics", {}, True),
    ("GET", "/respool", {}, True),
    ("POST", "/respool/api/x", {}, True),
    ("GET", "/respoolx", {}, False),
    ("GET", "/v1/respool/", {}, False),
    ("GET", "/%63lew/", {}, False),
]


@pytest.mark.parametrize(("method", "path", "headers", "own"), OWN)
def test_what_is_respools_own(method: str, path: str, headers: dict[str, str], own: bool):
    assert is_own(request(method, path, **headers)) is own


def test_pages_are_found_by_name_and_by_folder():
    async def page(*_args: object) -> None: ...

    async def folder(*_args: object) -> None: ...

    pages = {"/respool/a": page, "/respool/": folder}
    assert endpoint_for(pages, "/respool/a") is page
    assert endpoint_for(pages, "/respool/a/b") is folder
    assert endpoint_for(pages, "/respool/") is folder
    for path in ("/metrics", "/respool", "/"):
        with pytest.raises(ProxyError):
            endpoint_for(pages, path)
