"""Meaning of providers' errors: in the shapes that each of them has, and in any other."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.proxy.provider_errors import MAX_TEXT_CHARS, ErrorKind, ProviderError, classify_error
from tests.effort import examples


def anthropic(message: str, type: str = "invalid_request_error") -> Any:
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}


def openai(message: str, code: str | None = None, type: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": type, "param": "messages", "code": code}}


def google(message: str, status: str = "INVALID_ARGUMENT", code: int = 400, **more: Any) -> Any:
    return {"error": {"code": code, "message": message, "status": status, **more}}


def vllm(message: str) -> Any:
    return {"object": "error", "message": message, "type": "BadRequestError", "code": 400}


def openrouter(raw: Any, code: int = 400) -> Any:
    raw = raw if isinstance(raw, str) else json.dumps(raw)
    metadata = {"raw": raw, "provider_name": "Maze"}
    return {"error": {"message": "Provider returned error", "code": code, "metadata": metadata}}


def litellm(inner: Any) -> Any:
    said = f"litellm.BadRequestError: AnthropicException - b'{json.dumps(inner)}'. Received Model"
    return {"error": {"message": said, "type": None, "param": None, "code": "400"}}


def judged(status: int, body: Any) -> ProviderError:
    return classify_error(
        status, (), body if isinstance(body, bytes) else json.dumps(body).encode()
    )


LONG = "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input"
SGLANG = (
    "Requested token count exceeds the model's maximum context length of 131072 tokens. "
    "You requested a total of 524300.0 tokens: 12 tokens from the input messages and 524288.0 "
    "tokens for the completion."
)
MAX = "This model's maximum context length is"

# Of each: status, body, limit, count, output
OVERFLOWS: list[tuple[int, Any, int | None, int | None, int]] = [
    (400, anthropic("prompt is too long: 208310 tokens > 200000 maximum"), 200_000, 208_310, 0),
    (413, anthropic("Prompt is too long"), None, None, 0),
    (400, anthropic(LONG), 200_000, 199_759, 8192),
    (400, anthropic(LONG.replace("+ ", "+\n    ").replace("`", "")), 200_000, 199_759, 8192),
    (400, litellm(anthropic(LONG)), 200_000, 199_759, 8192),
    (400, openrouter(anthropic("prompt is too long: 7 tokens > 5 maximum")), 5, 7, 0),
    (413, openrouter(anthropic("Prompt is too long"), 413), None, None, 0),
    (
        400,
        {"message": "The model returned the following errors: prompt is too long: "
         "227255 tokens > 200000 maximum"},
        200_000, 227_255, 0,
    ),
    (400, {"message": "Input is too long for requested model."}, None, None, 0),
    (
        400,
        openai(f"{MAX} 128000 tokens. However, your messages resulted in 202868 tokens (202767 in "
               "the messages, 101 in the functions). Please reduce the length of the messages or "
               "functions.", "context_length_exceeded"),
        128_000, 202_868, 0,
    ),
    (
        400,
        openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted "
               "in 289650 tokens. Please reduce the length of the messages.",
               "context_length_exceeded"),
        272_000, 289_650, 0,
    ),
    (
        400,
        openai("Your input exceeds the context window of this model. Please adjust your input and "
               "try again.", "context_length_exceeded"),
        None, None, 0,
    ),
    (
        400,
        openai(f"{MAX} 131072 tokens. However, you requested 139162 tokens (130970 in the "
               "messages, 8192 in the completion). Please reduce the length of the messages or "
               "completion."),
        131_072, 130_970, 8192,
    ),
    (
        400,
        openai(f"{MAX} 8191 tokens, however you requested 10346 tokens (10341 in your prompt; 5 "
               "for the completion). Please reduce your prompt; or completion length."),
        8191, 10_341, 5,
    ),
    (
        400,
        google("The input token count (1200293) exceeds the maximum number of tokens allowed "
               "(1048576)."),
        1_048_576, 1_200_293, 0,
    ),
    (
        400,
        [google("The input token count exceeds the maximum number of tokens allowed 1048576.")],
        1_048_576, None, 0,
    ),
    (
        400,
        google("Unable to submit request because the input token count is 1251952 but model only "
               "supports up to 1048576. Reduce the input token count and try again."),
        1_048_576, 1_251_952, 0,
    ),
    (
        400,
        {"error": {"message": json.dumps(google(
            "The input token count (9) exceeds the maximum number of tokens allowed (8)."
        )), "code": 400, "status": "Bad Request"}},
        8, 9, 0,
    ),
    (
        400,
        {"error": {"code": 400, "message": "request (5010 tokens) exceeds the available context "
                   "size (2048 tokens), try increasing it", "type": "exceed_context_size_error",
                   "n_prompt_tokens": 5010, "n_ctx": 2048}},
        2048, 5010, 0,
    ),
    (
        500,
        {"error": {"code": 500, "message": "the request exceeds the available context size. try "
                   "increasing the context size or enable context shift",
                   "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}},
        256, 1407, 0,
    ),
    (400, vllm(f"{MAX} 32768 tokens. However, your request has 40000 input tokens. Please reduce "
               "the length of the input messages."), 32_768, 40_000, 0),
    (400, vllm(f"{MAX} 131072 tokens. However, you requested 64000 output tokens and your prompt "
               "contains at least 67073 input tokens, for a total of at least 131073 tokens."),
     131_072, 67_073, 64_000),
    (400, vllm("'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum "
               "context length is 8192 tokens and your request has 5000 input tokens "
               "(4096 > 8192 - 5000)."), 8192, 5000, 4096),
    (400, vllm("You passed 9000 input tokens and requested 100 output tokens. However, the model's "
               "context length is only 8192 tokens, resulting in a maximum input length of 8092 "
               "tokens."), 8192, 9000, 100),
    (400, vllm("The decoder prompt (length 9000) is longer than the maximum model length of 8192. "
               "Make sure that `max_model_len` is no smaller than the number of text tokens."),
     8192, 9000, 0),
    (400, vllm(SGLANG), 131_072, 12, 524_288),
    (400, {"errors": [{"message": f"AiError: {SGLANG}", "code": 8007}], "success": False},
     131_072, 12, 524_288),
    (400, {"detail": json.dumps(vllm(f"{MAX} 10 tokens. However, you requested 20 tokens"))},
     10, 20, 0),
    (
        400,
        {"error": {"message": "This endpoint's maximum context length is 131072 tokens. However, "
                   "you requested about 141607 tokens (10535 of text input, 131072 in the output). "
                   'Please reduce the length of either one, or use the "middle-out" transform to '
                   "compress your prompt automatically.", "code": 400}},
        131_072, 10_535, 131_072,
    ),
    (
        400,
        openai("This endpoint's maximum context length is 32768 tokens. However, you requested "
               "about 42832 tokens (42832 of text input). Please reduce the length"),
        32_768, 42_832, 0,
    ),
    (400, openai("The input (516368 tokens) is longer than the model's context length (262144 "
                 "tokens)."), 262_144, 516_368, 0),
    (400, openai("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
     131_040, 131_393, 0),
    (400, openai("Input length (265330) exceeds model's maximum context length (262144)."),
     262_144, 265_330, 0),
    (400, {"error": "This model's maximum prompt length is 131072 but the request contains 537812 "
           "tokens."}, 131_072, 537_812, 0),
    (400, {"object": "error", "message": "Prompt contains 300000 tokens and 0 draft tokens, too "
           "large for model with 131072 maximum context length", "type": "invalid_request"},
     131_072, 300_000, 0),
    (400, openai("Invalid request: Your request exceeded model token limit: 262144 (requested: "
                 "300000)"), 262_144, 300_000, 0),
    (400, openai("prompt token count of 200000 exceeds the limit of 128000"), 128_000, 200_000, 0),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
           "Given: 4000 `inputs` tokens and 1024 `max_new_tokens`"}, 4096, 4000, 1024),
    (400, openai("Range of input length should be [1, 129024]"), 129_024, None, 0),
    (400, openai("Prompt has 300,000 tokens, but the configured context size is 131,072 tokens"),
     131_072, 300_000, 0),
    (400, openai("prompt too long; exceeded max context length by 4096 tokens"), None, None, 0),
    (400, openai("invalid params, context window exceeds limit"), None, None, 0),
    (400, openai("litellm.ContextWindowExceededError: no"), None, None, 0),
    (400, b"prompt is too long: 208310 tokens > 200000 maximum", 200_000, 208_310, 0),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "limit", "count", "output"), OVERFLOWS)
def test_overflows(
    status: int, body: Any, limit: int | None, count: int | None, output: int
) -> None:
    found = judged(status, body)
    assert (found.kind, found.limit, found.count, found.output) == (
        "overflow",
        limit,
        count,
        output,
    )
    assert found.max_prompt == (None if limit is None else max(0, limit - output))


SIGNED = (
    "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation."
)
UNPAIRED = "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: t"
KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
QUOTA = (
    "Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, "
    "Requested 30601. The input or output tokens must be reduced in order to run successfully."
)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, anthropic(SIGNED), "invalid"),
        (400, anthropic(UNPAIRED), "invalid"),
        (400, openai("Item 'rs_1' of type 'reasoning' was provided without its following item."),
         "invalid"),
        (400, openai("Invalid 'messages[2].content': string too long. Expected a string with "
                     "maximum length 10485760, but got a string with length 10485999 instead.",
                     "string_above_max_length"), "invalid"),
        (400, openai("The response was filtered", "content_filter"), "invalid"),
        (400, anthropic("tools.3.name: rate limit_tool is too many requests"), "invalid"),
        (400, google("Function call is missing a thought_signature in functionCall parts."),
         "invalid"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "invalid"),
        (400, b"", "invalid"),
        (500, openai("Conversation roles must alternate user/assistant/user/assistant/...", None,
                     "server_error"), "invalid"),
        (413, anthropic("Request exceeds the maximum allowed number of bytes.",
                        "request_too_large"), "too_large"),
        (413, b"<html>413 Request Entity Too Large</html>", "too_large"),
        (413, b"", "too_large"),
        (400, google("Request payload size exceeds the limit: 20971520 bytes."), "too_large"),
        (429, anthropic("This request would exceed your rate limit", "rate_limit_error"), "rate"),
        (429, openai(QUOTA, "rate_limit_exceeded", "tokens"), "rate"),
        (413, openai(QUOTA.replace("gpt-4o", "model `llama`"), "rate_limit_exceeded", "tokens"),
         "rate"),
        (429, openai("You exceeded your current quota", "insufficient_quota"), "rate"),
        (429, google("Quota exceeded", "RESOURCE_EXHAUSTED", 429), "rate"),
        (429, {"message": "Too many tokens, please wait before trying again."}, "rate"),
        (429, b"", "rate"),
        (401, anthropic("invalid x-api-key", "authentication_error"), "auth"),
        (403, anthropic("no", "permission_error"), "auth"),
        (402, anthropic("no", "billing_error"), "auth"),
        (400, anthropic("Your credit balance is too low to access the Anthropic API."), "auth"),
        (401, openai("Incorrect API key provided: sk-…", "invalid_api_key"), "auth"),
        (400, google("API key not valid. Please pass a valid API key.", details=[KEY]), "auth"),
        (529, anthropic("Overloaded", "overloaded_error"), "overloaded"),
        (503, google("The model is overloaded.", "UNAVAILABLE", 503), "overloaded"),
        (503, openai("no", "server_is_overloaded"), "overloaded"),
        (404, anthropic("model: nope", "not_found_error"), "other"),
        (400, openai("The model does not exist", "model_not_found"), "other"),
        (500, anthropic("Internal server error", "api_error"), "other"),
        (502, b"Bad Gateway", "other"),
        (504, anthropic("no", "timeout_error"), "other"),
    ],
)  # fmt: skip
def test_other_refusals(status: int, body: Any, kind: ErrorKind) -> None:
    found = judged(status, body)
    assert found.kind == kind
    assert (found.limit, found.count, found.output, found.max_prompt) == (None, None, 0, None)


def test_bytes_that_a_body_may_have() -> None:
    google_says = google("Request payload size exceeds the limit: 20971520 bytes.")
    assert judged(400, google_says).max_bytes == 20_971_520
    other = {"error": {"message": "Maximum request body size 1048576 exceeded, actual 1056562"}}
    assert judged(413, other).max_bytes == 1_048_576


@pytest.mark.parametrize(
    ("message", "counted", "fitting"),
    [
        ("prompt is too long: 240000 tokens > 200000 maximum", 120_000, 100_000),
        ("prompt is too long: 240000 tokens > 200000 maximum", 300_000, 250_000),
        ("prompt is too long: 240000 tokens > 200000 maximum", 1000, 200_000),  # not the same text
        ("prompt is too long: 240000 tokens > 200000 maximum", 0, 200_000),
        (LONG, 199_759, 191_808),
        ("Prompt is too long", 120_000, None),
    ],
)
def test_what_fits_by_a_counter_of_ones_own(
    message: str, counted: int, fitting: int | None
) -> None:
    assert judged(400, anthropic(message)).max_prompt_by(counted) == fitting


def test_numbers_that_would_have_fitted_are_not_believed() -> None:
    found = judged(400, anthropic("prompt is too long: 100 tokens > 200000 maximum"))
    assert (found.kind, found.limit, found.count) == ("overflow", None, None)


def test_what_a_body_repeats_of_a_request_is_not_looked_at() -> None:
    repeated = {"loc": ["body"], "input": "prompt is too long: 9 tokens > 5 maximum"}
    body = openai("Field required") | {"detail": [repeated]}
    assert judged(400, body).kind == "invalid"


def test_code_and_start_of_the_message_are_kept() -> None:
    found = judged(400, openrouter(anthropic("x" * 5000)))
    assert found.code == "invalid_request_error"
    assert found.message == "x" * 300


def test_a_packed_body_is_read() -> None:
    body = gzip.compress(json.dumps(OVERFLOWS[0][1]).encode())
    found = classify_error(400, [(b"Content-Encoding", b"gzip")], body)
    assert (found.kind, found.limit) == ("overflow", 200_000)
    assert classify_error(400, [(b"content-encoding", b"rot13")], body).kind == "invalid"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(400, 599),
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: json.dumps(openai(text)).encode())
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "type", "details", "n_ctx"]), inner
            )
        ),
    ).map(lambda value: json.dumps(value).encode()),
)
def test_whatever_comes_is_judged(status: int, body: bytes) -> None:
    assert isinstance(classify_error(status, (), body), ProviderError)


@pytest.mark.parametrize(
    "text",
    [
        "maximum context length is 1 tokens you requested " * 5000,
        "1" * 200_000,
        "context length is " * 20_000,
        "length is 5 tokens you requested 9 tokens (" * 10_000,
        "{" * 100_000,
        "prompt is too long: " + "9," * 100_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    body = json.dumps(openai(text)).encode()
    assert len(body) > 10 * MAX_TEXT_CHARS
    begin = time.process_time()
    classify_error(400, (), body)
    assert time.process_time() - begin < 0.5
