"""Values of the variables in paths: which operation lists them, and which member of its items they are."""

from typing import Any

import pytest

from bbfs.sources.api.document import Documents
from bbfs.sources.api.operations import Api, Operation, read
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.parameters import Parameter
from bbfs.sources.api.values import answers_for, hinted, lister, values_in, variable_at

AT = "https://h/openapi.json"


def api(*paths: str, **gets: Any) -> Api:
    items = {
        path: {"get": gets.get(path.strip("/").replace("/", "_").replace("{", "").replace("}", ""), {})}
        for path in paths
    }
    return read(Documents(AT, {AT: {"openapi": "3.1.0", "paths": items}}, {}).root, ApiOptions(document=AT))


def at(found: Api, path: str) -> Operation:
    return next(each for each in found.operations if each.path == path)


@pytest.mark.parametrize(
    ("paths", "of", "index", "expected"),
    [
        (("/pets", "/pets/{id}"), "/pets/{id}", 0, "/pets"),
        (("/pets/", "/pets/{id}"), "/pets/{id}", 0, "/pets/"),
        (("/pets.json", "/pets/{id}.json"), "/pets/{id}.json", 0, "/pets.json"),
        (("/u/{a}/r", "/u/{b}/r/{c}/x"), "/u/{b}/r/{c}/x", 1, "/u/{a}/r"),
        (("/pets/{id}", "/cats"), "/pets/{id}", 0, None),
        (("/u/{a}", "/u/{a}/{b}"), "/u/{a}/{b}", 1, "/u/{a}"),
    ],
)
def test_the_list_is_above(paths: tuple[str, ...], of: str, index: int, expected: str | None) -> None:
    found = api(*paths)
    source = lister(found, at(found, of), index)
    assert (source.operation.path if source else None) == expected


def test_a_list_that_needs_a_query_is_none() -> None:
    found = api("/pets", "/pets/{id}", pets={"parameters": [{"name": "q", "in": "query", "required": True}]})
    assert lister(found, at(found, "/pets/{id}"), 0) is None


def test_one_template_of_those_that_begin_alike_gives_the_values() -> None:
    needs = {"parameters": [{"name": "q", "in": "query", "required": True}]}
    found = api("/p/{id}", "/p/{key}/a", "/p/{id}/b/{x}", "/s/{id}", "/s/{id}/find", s_id=needs, s_id_find=needs)
    given = [(each.path, index) for each in found.operations for index in range(len(each.in_path))
             if any(answers_for(found, each, t, index) for t in (each.base, each.query_template) if t)]  # fmt: skip
    assert sorted(given) == [("/p/{id}", 0), ("/p/{id}/b/{x}", 1), ("/s/{id}/find", 0)]
    find = at(found, "/s/{id}/find")
    assert answers_for(found, find, find.query_template or "", 0)
    assert variable_at(found, find.query_template or "", "id") == (find, find.in_path[0], 0)
    assert variable_at(found, find.base, "other") is None


def test_the_documents_own_hints_come_first() -> None:
    hint = {"operationId": "all", "value-path": "meta/code", "value-collection": "items"}
    parameter = {"name": "id", "in": "path", "required": True, "x-ms-dynamic-values": hint}
    found = api("/codes", "/pets/{id}", codes={"operationId": "all"}, pets_id={"parameters": [parameter]})
    source = hinted(found, at(found, "/pets/{id}").in_path[0])
    assert source is not None
    assert (source.operation.path, source.field) == ("/codes", ("meta", "code"))
    links = {"one": {"operationId": "get", "parameters": {"id": "$response.body#/items/0/ref/key"}}}
    answers = {"responses": {"200": {"links": links}}}
    found = api("/pets", "/pets/{id}", pets=answers, pets_id={"operationId": "get"})
    source = lister(found, at(found, "/pets/{id}"), 0)
    assert source is not None
    assert source.field == ("ref", "key")


@pytest.mark.parametrize(
    ("name", "kind", "items", "expected"),
    [
        ("petId", "integer", [{"id": 1, "name": "a"}, {"id": 2}], ["1", "2"]),
        ("petId", "integer", [{"id": 1, "petId": 7}], ["7"]),
        ("pet_id", None, [{"PetID": "x", "id": 3}], ["x"]),
        ("repo", "string", [{"id": 1, "name": "r"}], ["r"]),
        ("user_name", "string", [{"id": 1, "name": "n", "userName": "u"}], ["u"]),
        ("orderSlug", "string", [{"id": "1", "slug": "s"}], ["s"]),
        ("id", "string", [{"id": 5}], ["5"]),
        ("x", None, ["a", 2, "a", None, True, ["no"], "..", ""], ["a", "2", "true"]),
        ("x", None, [{"a": 1}], []),
        ("x", None, [], []),
        ("id", "integer", [{"id": 1}, {"name": "no id"}, "text"], ["1"]),
    ],
)
def test_the_member_with_the_value_is_found(name: str, kind: str | None, items: list[Any], expected: list[str]) -> None:
    assert values_in(items, Parameter(name, "path", name, True, type=kind), None) == expected


def test_a_member_that_is_named_is_taken() -> None:
    parameter = Parameter("id", "path", "id", True)
    assert values_in([{"id": 1, "a": {"b": "x"}}, {"id": 2}], parameter, ("a", "b")) == ["x"]
