"""A JSON schema as a grammar. llama-cpp-python converts; here the schema is read before.

The converter reads some keywords of each part and passes over the others, and what it cannot read
ends in an assertion about its own state. So each part is looked at first: what is wrong is said
with its place, what nothing could match is refused, and what is passed over is named.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from specctl.errors import GrammarError
from specctl.llama.api import library

MANY_OPTIONAL = 200  # properties of one object: the converter goes a step deeper for each
_LONE = re.compile(r"[\ud800-\udfff]")
MOST_COUNT = 10_000  # of what a schema repeats: the converter writes each one out
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_FORMATS = re.compile(r"uuid[1-5]?|date|time|date-time")
_BRACES = re.compile(r"\{[\d, ]*\}")
_CHOICES = ("oneOf", "anyOf", "allOf")
_BOUNDS = (("minLength", "maxLength"), ("minItems", "maxItems"))
# Keywords that describe, or that say nothing where they stand alone.
_QUIET = {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default",
    "examples", "strict", "deprecated", "readOnly", "writeOnly", "type",
}  # fmt: skip

Schema = dict[str, Any]


def from_schema(text: str) -> tuple[str, tuple[str, ...]]:
    """A JSON schema as GBNF, and the keywords in it that the grammar does not enforce.

    `{"type": "object"}` is any JSON object.

    Raises:
        GrammarError: no JSON, no schema, one that nothing matches, or one that cannot be converted.
    """
    try:
        schema: Any = json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise GrammarError("the JSON schema is no JSON: it nests too deep") from error
    except ValueError as error:
        said = str(error) if text.strip() else "there is nothing in it"
        raise GrammarError(f"the JSON schema is no JSON: {said}") from error
    if not isinstance(schema, dict):
        raise GrammarError(f"a JSON schema is an object, not {text.strip()[:40]}", "any object: {}")
    reader = _Reader(schema)
    try:
        _check_characters(schema)
        passed_over = reader.read()
        return _converted(json.dumps(_unrooted(schema))), passed_over
    except RecursionError as error:
        optional, at = reader.widest
        if optional > MANY_OPTIONAL:
            raise _wrong(
                at,
                f"{optional} are too many optional properties",
                "list in `required` those that are always there",
            ) from error
        raise GrammarError("the JSON schema nests too deep") from error


def _check_characters(schema: Schema) -> None:
    if _LONE.search(json.dumps(schema, ensure_ascii=False)):
        raise GrammarError(
            "the JSON schema holds half of a surrogate pair (\\ud800 … \\udfff), which is no "
            "character and has no UTF-8",
            "write the character itself, or both halves",
        )


def _unrooted(schema: Schema) -> Schema:
    """The converter does not look for references beside one at the root: put it a step inside."""
    if "$ref" not in schema:
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("$ref", *_CHOICES)}
    return {**kept, "anyOf": [{"$ref": schema["$ref"]}]}


def _converted(text: str) -> str:
    library()
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        return str(json_schema_to_gbnf(text))
    except (AssertionError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise GrammarError(
            f"the JSON schema cannot be made a grammar: {str(error)[:200] or 'unknown form'}",
            "a smaller or plainer schema; docs/grammar.md says what is read",
        ) from error


class _Reader:
    """Walks what the converter will visit. Raises GrammarError at the first part that is wrong."""

    def __init__(self, schema: Schema) -> None:
        self._whole = schema
        self._passed_over: set[str] = set()
        self._names: dict[str, str] = {}  # last word of a reference → the reference
        self._followed: set[str] = set()
        self.widest = (0, "")  # most optional properties of one object, and where

    def read(self) -> tuple[str, ...]:
        """The keywords that nobody enforces."""
        self._part(self._whole, "")
        return tuple(sorted(self._passed_over))

    def _part(self, part: object, at: str) -> None:
        if not isinstance(part, dict):
            raise _wrong(at, f"{_short(part)} stands where a schema must be", "write an object")
        if part.get("type") == "array" and part.get("items") == {}:
            del part["items"]  # any array; the converter stumbles over it
        _check_types(part, at)
        _check_bounds(part, at)
        read = _read_of(part, at)
        self._passed_over |= {key for key in part if key not in read and key not in _QUIET}
        if "$ref" in read:
            self._reference(part["$ref"], at)
        elif "pattern" in read:
            _check_pattern(part["pattern"], at)
        elif "properties" in read:
            self._object(part, at)
        for key in read & {"items", "prefixItems", *_CHOICES}:
            self._inside(key, part[key], at)

    def _inside(self, key: str, value: object, at: str) -> None:
        if key == "items" and isinstance(value, dict):
            self._part(value, f"{at}/{key}")
            return
        if not isinstance(value, list) or not value:
            raise _wrong(f"{at}/{key}", f"{_short(value)} is no list of schemas")
        for index, one in enumerate(value):
            self._part(one, f"{at}/{key}/{index}")
            if key == "allOf" and not {"properties", "$ref", "anyOf"} & one.keys():
                raise _wrong(
                    f"{at}/{key}/{index}",
                    "allOf is read of parts with properties alone",
                    "write the parts as one schema",
                )

    def _object(self, part: Schema, at: str) -> None:
        properties = part.get("properties", {})
        if not isinstance(properties, dict):
            raise _wrong(f"{at}/properties", f"{_short(properties)} is no object of schemas")
        optional = len(properties.keys() - set(part.get("required", ())))
        self.widest = max(self.widest, (optional, f"{at}/properties"))
        for name, one in properties.items():
            self._part(one, f"{at}/properties/{name}")
        more = part.get("additionalProperties")
        if isinstance(more, dict):
            self._part(more, f"{at}/additionalProperties")
        elif more not in (None, True, False):
            raise _wrong(f"{at}/additionalProperties", f"{_short(more)} is neither true nor false")
        for name in part.get("required", ()):
            if name in properties:
                continue
            if more is False:
                raise _wrong(
                    at, f"{name!r} is required and may not be there: nothing matches",
                    "list it in properties, or allow additionalProperties",
                )  # fmt: skip
            self._passed_over.add(f"required of {name!r}")

    def _reference(self, ref: object, at: str) -> None:
        """Follow it once; a definition may contain itself, but not be itself."""
        if ref == "#":
            raise _wrong(
                f"{at}/$ref", '"#" is the schema itself: a recursive root is not supported',
                "put it into $defs, and refer to it there from both places",
            )  # fmt: skip
        if not isinstance(ref, str) or not ref.startswith("#/"):
            raise _wrong(f"{at}/$ref", f"{_short(ref)} leaves the schema", "only #/… is followed")
        if self._names.setdefault(ref.rsplit("/", 1)[-1], ref) != ref:
            raise _wrong(
                f"{at}/$ref", f"{ref!r} ends like {self._names[ref.rsplit('/', 1)[-1]]!r}",
                "the converter tells them by the last word: rename one",
            )  # fmt: skip
        if ref in self._followed:
            return
        self._followed.add(ref)
        target, chain = self._target(ref, at), [ref]
        end = target
        while isinstance(end, dict) and "$ref" in end:
            if end["$ref"] in chain:
                raise _wrong(f"{at}/$ref", f"{ref!r} leads round in a circle")
            chain.append(end["$ref"])
            end = self._target(end["$ref"], at)
        self._part(target, ref[1:])

    def _target(self, ref: object, at: str) -> Any:
        target: Any = self._whole
        for step in str(ref)[2:].split("/"):
            if not isinstance(target, dict) or step not in target:
                raise _wrong(f"{at}/$ref", f"{ref!r} leads nowhere: there is no {step!r}")
            target = target[step]
        return target


def _read_of(part: Schema, at: str) -> set[str]:
    """The keywords that the converter reads of a part, in its own order of precedence."""
    kind = part.get("type")
    for key in ("$ref", "oneOf", "anyOf"):
        if key in part:
            return {key}
    if isinstance(kind, list):
        return {"type"}
    for key in ("const", "enum"):
        if key in part:
            return {key}
    more = part.get("additionalProperties", True)
    if kind in (None, "object") and ("properties" in part or more is not True):
        return {"properties", "required", "additionalProperties"}
    if kind in (None, "object") and "allOf" in part:
        return {"allOf"}
    for key in ("items", "prefixItems"):
        if kind in (None, "array") and part.get(key):
            return {key, *(("minItems", "maxItems") if isinstance(part[key], dict) else ())}
    if kind in (None, "string"):
        if "pattern" in part:
            return {"pattern"}
        if _FORMATS.fullmatch(str(part.get("format"))):
            return {"format"}
    if kind == "string":
        return {"minLength", "maxLength"}
    if kind is None and part:
        found = ", ".join(f"`{key}`" for key in sorted(part)[:5])
        raise _wrong(
            at,
            f"a grammar cannot be made of {found} alone",
            "give it a type, properties, items, enum, const, anyOf or $ref",
        )
    return {"additionalProperties"}


def _check_types(part: Schema, at: str) -> None:
    kind = part.get("type")
    for one in kind if isinstance(kind, list) else [kind] if "type" in part else []:
        if one not in _TYPES:
            raise _wrong(
                f"{at}/type", f"{_short(one)} is no type", f"there are {', '.join(_TYPES)}"
            )
    for key in ("type", "enum", *_CHOICES):
        if part.get(key) == []:
            raise _wrong(f"{at}/{key}", "an empty list: nothing matches")
    if "enum" in part and not isinstance(part["enum"], list):
        raise _wrong(f"{at}/enum", f"{_short(part['enum'])} is no list of values")
    required = part.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise _wrong(f"{at}/required", f"{_short(required)} is no list of names")


def _check_bounds(part: Schema, at: str) -> None:
    for pair in _BOUNDS:
        for key in pair:
            value = part.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise _wrong(f"{at}/{key}", f"{_short(value)} is no count")
            if value > MOST_COUNT:
                raise _too_often(f"{at}/{key}", f"{value}")
        least, most = part.get(pair[0], 0), part.get(pair[1], math.inf)
        if least > most:
            raise _wrong(at, f"{pair[0]} {least} is above {pair[1]} {most}: nothing matches")


def _check_pattern(pattern: object, at: str) -> None:
    at = f"{at}/pattern"
    if not isinstance(pattern, str):
        raise _wrong(at, f"{_short(pattern)} is no regular expression")
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise _wrong(at, f"{_short(pattern)} must begin with ^ and end with $", "^.*abc.*$, say")
    if "(?" in pattern:
        raise _wrong(at, f"{_short(pattern)} has a (?…), which is not supported")
    for least, most in re.findall(r"\{(\d+),(\d+)\}", pattern):
        if int(least[:12]) > int(most[:12]):
            raise _wrong(at, f"{{{least},{most}}} in it: nothing matches")
    counts = [int(text[:12]) for text in re.findall(r"\d+", " ".join(_BRACES.findall(pattern)))]
    total = math.prod(max(1, count) for count in counts)
    if total > MOST_COUNT:
        raise _too_often(at, f"{total} repetitions")


def _too_often(at: str, what: str) -> GrammarError:
    hint = "the grammar would be written out that often"
    return _wrong(at, f"{what} is above {MOST_COUNT}", hint)


def _wrong(at: str, words: str, hint: str | None = None) -> GrammarError:
    return GrammarError(f"the JSON schema, at #{at[:120]}: {words}", hint)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
