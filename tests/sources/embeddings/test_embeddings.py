"""Vectors of texts: by an endpoint that answers well, badly, late or not at all, and by a static model."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from embedding_endpoint import KEY, MODEL, Endpoint, config, endpoint, vectors_of
from vectors import DIMENSIONS, embedded, static_model

from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    DeadlineExceeded,
    LoginRequired,
    NotSupported,
    ProtocolViolation,
    Unreachable,
)
from bbfs.model.values import DataSource, Policy
from bbfs.sources.embeddings.embedder import Embedder, made
from bbfs.sources.embeddings.options import EmbeddingOptions
from bbfs.sources.http.addresses import names_private
from bbfs.sources.options import parse_table

SOURCE = DataSource("v", "v", "vector_search", "bb", "bb-vector_search+v+sqlite", policy=Policy(timeout=5))


@pytest.fixture
def running() -> Iterator[Endpoint]:
    with endpoint() as started:
        yield started


@asynccontextmanager
async def embedder(source: DataSource = SOURCE, **options: Any) -> AsyncIterator[Embedder]:
    built = made(source, parse_table(EmbeddingOptions, options, "embeddings"), "embeddings")
    try:
        with trio.fail_after(20):
            yield built
    finally:
        await built.aclose()


async def test_texts_become_vectors_in_batches_and_in_their_order(running: Endpoint) -> None:
    texts = ["renew certificate", "coffee", "brew beans", "coffee", "source"]
    async with embedder(**config(running, batch=2)) as built:
        found = await built.embed(texts)
        assert [list(memoryview(each).cast("f")) for each in found] == vectors_of(texts)
        assert [request["input"] for request in running.requests] == [texts[:2], ["brew beans", "source"]]
        assert (built.name, built.dimensions, built.costs) == (MODEL, DIMENSIONS, True)
        assert running.requests[0] | {"input": []} == {"model": MODEL, "encoding_format": "float", "input": []}
        assert set(running.keys) == {f"Bearer {KEY}"}
        await built.embed(["coffee"])
        assert len(running.requests) == 2  # the vector of a text is kept


async def test_an_endpoint_is_asked_for_the_dimensions_of_an_option(running: Endpoint) -> None:
    async with embedder(**config(running, dimensions=DIMENSIONS, send_dimensions=True)) as built:
        await built.embed(["coffee"])
        assert running.requests[0]["dimensions"] == DIMENSIONS


def _data(*vectors: Any, **more: Any) -> dict[str, Any]:
    return {"data": [{"index": n, "embedding": vector, **more} for n, vector in enumerate(vectors)]}


WRONG: dict[str, Any] = {
    "no object": [],
    "no data": {},
    "no vector": _data(None),
    "no vectors": _data(),
    "too many vectors": _data([1.0] * 4, [1.0] * 4),
    "no numbers": _data(["1"] * 4),
    "booleans": _data([True] * 4),
    "empty": _data([]),
    "another dimension": _data([1.0] * 5),
    "huge": _data([1.0] * 70_000),
    "too large a number": _data([1e300] * 4),
    "too large a whole number": _data([10**400] * 4),
    "index beyond": _data([1.0] * 4, index=7),
    "index no number": _data([1.0] * 4, index="0"),
    "not a number": b'{"data": [{"index": 0, "embedding": [NaN, 1, 1, 1]}]}',
    "no json": b"<html>",
    "cut": b'{"data": [{"index": 0, "embedding": [1.0, 1.0',
    "deep": b"[" * 100_000,
}


@pytest.mark.semantics("S23", "S27")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_answer_is_an_error_that_names_the_model(running: Endpoint, name: str) -> None:
    running.wrong = lambda _request: (200, WRONG[name])
    async with embedder(**config(running, dimensions=4)) as built:
        with pytest.raises(BbfsError) as caught:
            await built.embed(["coffee"])
    assert type(caught.value).__name__ in ("ProtocolViolation", "TooLarge")
    assert MODEL in str(caught.value) or "/v1/embeddings" in str(caught.value)
    assert KEY not in str(caught.value)


async def test_vectors_of_one_model_have_one_number_of_dimensions(running: Endpoint) -> None:
    running.wrong = lambda _request: (200, _data([1.0] * len(running.requests)))
    async with embedder(**config(running)) as built:
        await built.embed(["coffee"])
        with pytest.raises(ProtocolViolation, match="2 dimensions where 1 are expected"):
            await built.embed(["beans"])


@pytest.mark.semantics("S23")
async def test_a_missing_model_and_a_refused_key_say_so(running: Endpoint) -> None:
    async with embedder(url=running.url, model="other") as built:
        with pytest.raises(NotSupported, match=r"refuses the model 'other' \(embeddings.model\).*try pulling it"):
            await built.embed(["coffee"])
    running.wrong = lambda _request: (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    async with embedder(**config(running)) as built:
        with pytest.raises(LoginRequired) as caught:
            await built.embed(["coffee"])
    assert KEY not in str(caught.value)


@pytest.mark.semantics("S23")
async def test_an_endpoint_that_fails_is_asked_again_and_then_given_up(running: Endpoint) -> None:
    def fails_once(request: dict[str, Any]) -> tuple[int, Any]:
        running.wrong = None
        return 500, {}

    running.wrong = fails_once
    async with embedder(**config(running)) as built:
        assert len(await built.embed(["coffee"])) == 1
        assert len(running.requests) == 2
        running.wrong = lambda _request: (502, {})
        with pytest.raises(Unreachable, match="502"):
            await built.embed(["beans"])
        assert len(running.requests) == 5


@pytest.mark.semantics("S22")
async def test_an_endpoint_that_is_down_or_silent_ends_in_time(running: Endpoint) -> None:
    running.hang.clear()
    quick = DataSource("v", "v", "vector_search", "bb", "bb-vector_search+v+sqlite", policy=Policy(timeout=0.5))
    async with embedder(quick, **config(running)) as built:
        with pytest.raises(DeadlineExceeded):
            await built.embed(["coffee"])
    running.close()
    async with embedder(**config(running)) as built:
        with pytest.raises(Unreachable):
            await built.embed(["coffee"])


def test_only_a_url_that_names_this_machine_or_a_network_reaches_it() -> None:
    for url in (
        "http://localhost:11434/v1",
        "http://127.0.0.1/v1",
        "http://[::1]/",
        "http://10.1.2.3/",
        "http://a.localhost",
    ):
        assert names_private(url), url
    for url in (
        "https://api.openai.com/v1",
        "http://8.8.8.8/",
        "http://localhost.example.com/",
        "http://gpu/v1",
        "http://[x]/",
        "http://[::1",
    ):
        assert not names_private(url), url


@pytest.mark.parametrize(
    "options",
    [{}, {"url": "http://x/v1"}, {"url": "ftp://x", "model": "m"}, {"url": "http://user:pw@x/", "model": "m"},
     {"url": "http://x", "model": "m", "folder": "f"}, {"folder": ""}, {"folder": "f", "dimension": 3},
     {"url": "http://x", "model": "m", "send_dimensions": True}, {"url": "http://x", "model": "m", "key": "a\nb"}],
)  # fmt: skip
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        parse_table(EmbeddingOptions, options, "embeddings")


async def test_a_static_model_makes_the_vectors_of_its_words(tmp_path: Path) -> None:
    async with embedder(folder=str(static_model(tmp_path / "words"))) as built:
        found = await built.embed(["Renew certificate", "coffee"])
        for vector, text in zip(found, ["renew certificate", "coffee"], strict=True):
            expected = memoryview(embedded(text)).cast("f")
            assert list(memoryview(vector).cast("f")) == pytest.approx(list(expected), abs=1e-5)
        assert (built.name, built.dimensions, built.costs) == ("words", DIMENSIONS, False)
        assert len((await built.embed([""]))[0]) == DIMENSIONS * 4


@pytest.mark.semantics("S23", "S27")
@pytest.mark.parametrize("wrong", ["folder", "weights", "cut", "header", "tokenizer", "config", "vocabulary"])
async def test_a_folder_that_is_no_model_is_one_sentence(tmp_path: Path, wrong: str) -> None:
    folder = static_model(tmp_path / "words")
    weights, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    match wrong:
        case "folder":
            folder = tmp_path / "nothing"
        case "weights":
            weights.unlink()
        case "cut":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "header":
            weights.write_bytes((1 << 40).to_bytes(8, "little") + b"{}" * 100)
        case "tokenizer":
            tokenizer.write_text("[" * 100_000)
        case "config":
            (folder / "config.json").write_text("{")
        case "vocabulary":
            given = json.loads(tokenizer.read_text())
            given["model"]["vocab"] = {"[UNK]": 0}
            tokenizer.write_text(json.dumps(given))
    async with embedder(folder=str(folder)) as built:
        with pytest.raises(BbfsError) as caught:
            await built.embed(["coffee"])
    assert str(folder) in str(caught.value)
    assert type(caught.value) is (Unreachable if wrong == "folder" else ProtocolViolation)
