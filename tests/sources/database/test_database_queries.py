"""Named queries: options, values in file names, and the SQL that is made of them."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from bbfs.model.errors import BbfsError, InvalidUri, NotFound
from bbfs.sources.database.queries import Query, QueryOptions, parse_file_name

SALES = Query(
    "sales",
    QueryOptions.model_validate(
        {
            "sql": "SELECT * FROM s WHERE day::date >= :from::date AND region = :region AND n < :n"
            " AND t <> '12\\:30' AND p LIKE '5%';",
            "description": "What was sold",
            "parameters": {"from": "date", "n": {"type": "number", "default": 10, "description": "less than"}},
        }
    ),
)


def test_parameters_are_those_of_the_sql() -> None:
    assert {name: parameter.type for name, parameter in SALES.parameters.items()} == {
        "from": "date",
        "region": "text",
        "n": "number",
    }
    assert SALES.required == ["from", "region"]
    assert "day::date >= %(from)s::date AND region = %(region)s AND n < %(n)s" in SALES.pyformat()
    assert "'12:30' AND p LIKE '5%%'" in SALES.pyformat()
    assert "day::date >= :from::date AND" in SALES.named()
    compiled = text(SALES.escaped()).compile(dialect=PGDialect_psycopg())
    assert "day::date >= %(from)s ::date AND region = %(region)s  AND" in str(compiled)
    assert "'12:30' AND p LIKE '5%%'" in str(compiled)
    assert "'12:30' AND p LIKE '5%'" in SALES.named()
    assert SALES.source_text().startswith(
        "-- What was sold\n-- :from date\n-- :region text\n-- :n number, 10 unless given: less than\nSELECT"
    )


def test_values_are_read_from_the_file_name_by_their_types() -> None:
    query, form, arguments = parse_file_name("sales?from=2026-01-02&region=a%26b%2F%C3%BC%25+=c.csv", {"sales": SALES})
    assert (query, form) == (SALES, "csv")
    assert SALES.values(arguments) == {"from": date(2026, 1, 2), "region": "a&b/ü%+=c", "n": Decimal(10)}
    assert parse_file_name("sales.sql", {"sales": SALES})[1:] == ("sql", None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (None, "missing from, region"),
        ("from=2026-01-02", "missing region"),
        ("from=2026-13-02&region=x", "is no date"),
        ("from=2026-01-02&region=x&region=y", "twice"),
        ("from=2026-01-02&region", "no parameter 'region'; there are: from, region, n"),
        ("from=2026-01-02&region=%FF", "not UTF-8"),
        ("from=2026-01-02&region=%00", "zero byte"),
        ("from=2026-01-02&region=x&n=many", "is no number"),
        ("=", "no parameter ''"),
    ],
)
def test_what_is_wrong_with_the_values_is_said(arguments: str | None, words: str) -> None:
    with pytest.raises(InvalidUri, match=words):
        SALES.values(arguments)


@pytest.mark.parametrize("name", ["sales", "sales.xml", "other.csv", ".csv", "sales?x=1.sql", "", "sales?from=1"])
def test_other_names_are_not_found(name: str) -> None:
    with pytest.raises(NotFound):
        parse_file_name(name, {"sales": SALES})


@given(st.text(max_size=40))
def test_any_file_name_gives_values_or_an_error_of_bbfs(name: str) -> None:
    try:
        query, _, arguments = parse_file_name(name + ".csv", {"sales": SALES})
        values = query.values(arguments)
    except BbfsError:
        return
    assert set(values) == {"from", "region", "n"}


@pytest.mark.parametrize(
    "given",
    [
        {"sql": ""},
        {"sql": "SELECT 1", "parameters": {"x": "text"}},
        {"sql": "SELECT :x", "parameters": {"x": "colour"}},
        {"sql": "SELECT :x", "parameters": {"x": {"type": "integer", "default": "one"}}},
        {"sql": "SELECT 1", "more": 1},
    ],
)
def test_a_bad_query_is_refused(given: dict[str, object]) -> None:
    with pytest.raises((ValidationError, InvalidUri)):
        QueryOptions.model_validate(given)
