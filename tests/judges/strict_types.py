"""Strict validators made from an SDK's own types.

The SDKs describe requests with TypedDicts, which pydantic can judge; left to itself it is mild:

- `Iterable[...]` becomes a generator that validates nothing until somebody walks it;
- keys that the type does not name are let through;
- a union takes a value that any member takes, and among them are the *response* models, which
  take nearly everything;
- models with an `__init__` or a hook of their own are built through it, outside strict mode.

Here the types stay the SDK's; only the schema that pydantic makes of them is rewritten: generators
become lists, unknown keys are refused, response models leave the unions, unions of objects are
distinguished by their `type` or `role`, and everything is strict: 1 is no string and no boolean.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

Schema = dict[str, Any]
TAGS = ("type", "role")
UNTAGGED = "(none)"  # chosen among the members that may go without a tag


class Judgement:
    """A validator made of one SDK type."""

    def __init__(self, sdk_type: Any) -> None:
        self._type = sdk_type

    @cached_property
    def _validator(self) -> SchemaValidator:
        """The validator, built at first use."""
        adapter = cast(TypeAdapter[Any], TypeAdapter(self._type))
        adapter.rebuild(force=True)
        schema = cast(Schema, adapter.core_schema)
        definitions = {item["ref"]: item for item in _walk(schema) if "ref" in item}
        tight = _Tightening(definitions).apply(schema)
        return SchemaValidator(cast(Any, tight), cast(Any, {"strict": True}))

    def of(self, value: Any, place: str) -> list[str]:
        """Complaints of the type about a decoded JSON value."""
        return _told(lambda: self._validator.validate_python(value, strict=True), place)

    def of_json(self, value: Any, place: str) -> list[str]:
        """The same for types with bytes and enums in them, which only JSON can spell."""
        return _told(lambda: self._validator.validate_json(json.dumps(value), strict=True), place)


def _told(validate: Callable[[], Any], place: str) -> list[str]:
    try:
        validate()
    except ValidationError as error:
        return [
            f"{place}{_path(item['loc'])}: {item['msg']}"
            for item in error.errors(include_url=False)
        ]
    return []


def _path(steps: Iterable[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _walk(value: Any) -> Iterable[Schema]:
    """Every schema inside a schema."""
    if isinstance(value, dict):
        schema = cast(Schema, value)
        if isinstance(schema.get("type"), str):
            yield schema
        for key, inner in schema.items():
            if not _is_note(schema, key):
                yield from _walk(inner)
    elif isinstance(value, list | tuple):
        for inner in cast(list[Any], value):
            yield from _walk(inner)


def _is_note(schema: Schema, key: str) -> bool:
    """Return whether the key holds pydantic's metadata, and not a request's own field."""
    return key == "metadata" and isinstance(schema.get("type"), str)


def _only_warns(schema: Schema) -> bool:
    """Return whether this is google-genai's hook that only logs, and hides strict JSON checks."""
    hook = schema["function"]["function"]
    return getattr(hook, "__name__", "") == "_check_field_type_mismatches"


class _Tightening:
    """Rewrites a schema from the leaves up."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def apply(self, value: Any) -> Any:
        """The same schema with nothing lazy and nothing lenient in it."""
        if isinstance(value, list):
            return [self.apply(item) for item in cast(list[Any], value)]
        if isinstance(value, tuple):
            return tuple(self.apply(item) for item in cast(tuple[Any, ...], value))
        if not isinstance(value, dict):
            return value
        schema = {
            key: item if _is_note(cast(Schema, value), key) else self.apply(item)
            for key, item in cast(Schema, value).items()
        }
        match schema.get("type"):
            case "generator":
                return {"type": "list", "items_schema": schema["items_schema"], "strict": True}
            case "typed-dict" if "extras_schema" not in schema:
                return {**schema, "extra_behavior": "forbid", "config": {"strict": True}}
            case "model":
                return {**schema, "custom_init": False}
            case "function-before" if _only_warns(schema):
                return schema["schema"]
            case "union":
                return self._union(schema)
            case _:
                return schema

    def _union(self, schema: Schema) -> Schema:
        choices = [
            choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]
        ]
        objects = [choice for choice in choices if self._fields(choice) is not None]
        others = [choice for choice in choices if self._fields(choice) is None]
        if not objects:
            return schema
        others = [choice for choice in others if not self._is_response(choice)]
        merged = self._tagged(objects) if len(objects) > 1 else None
        kept = [merged] if merged else objects
        return {**schema, "choices": [*others, *kept]} if others or len(kept) > 1 else kept[0]

    def _resolved(self, choice: Schema) -> Schema:
        while choice.get("type") == "definition-ref":
            choice = self._definitions[choice["schema_ref"]]
        return choice

    def _is_response(self, choice: Any) -> bool:
        """Return whether the choice is a response model, or a union of such models."""
        found = self._resolved(choice[0] if isinstance(choice, tuple) else choice)
        if found.get("type") not in ("union", "tagged-union"):
            return found.get("type") == "model"
        choices = found["choices"]
        members = choices.values() if isinstance(choices, dict) else choices
        return all(self._is_response(member) for member in cast(Iterable[Any], members))

    def _fields(self, choice: Schema) -> dict[str, Schema] | None:
        found = self._resolved(choice)
        return found.get("fields") if found.get("type") == "typed-dict" else None

    def _tagged(self, objects: list[Schema]) -> Schema | None:
        """The union tagged by a key whose values its members list, if there is one."""
        for key in TAGS:
            groups: dict[str, list[Schema]] = {}
            tags = [self._literals((self._fields(choice) or {}).get(key)) for choice in objects]
            if not all(tags):
                continue
            for choice, literals in zip(objects, tags, strict=True):
                optional = not (self._fields(choice) or {})[key].get("required")
                for literal in [*literals, UNTAGGED] if optional else literals:
                    groups.setdefault(literal, []).append(choice)
            if len(groups) == 1:
                continue
            return {
                "type": "tagged-union",
                "discriminator": _tag_reader(key),
                "choices": {tag: _either(group) for tag, group in groups.items()},
            }
        return None

    def _literals(self, field: Schema | None) -> list[str]:
        found = field["schema"] if field else {}
        while found.get("type") in ("nullable", "default", "definition-ref"):
            found = (
                self._definitions[found["schema_ref"]] if "schema_ref" in found else found["schema"]
            )
        return list(found["expected"]) if found.get("type") == "literal" else []


def _either(group: list[Schema]) -> Schema:
    return group[0] if len(group) == 1 else {"type": "union", "choices": group}


def _tag_reader(key: str) -> Callable[[Any], str | None]:
    """Reads the tag of an object."""

    def tag(value: Any) -> str | None:
        found = cast(dict[str, Any], value).get(key, UNTAGGED) if isinstance(value, dict) else None
        return found if isinstance(found, str) else None

    return tag
