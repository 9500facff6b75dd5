"""Which vocabularies may draft for which: llama.cpp's rule, and the first reason named."""

from __future__ import annotations

import dataclasses

import pytest

from specctl.vocabulary import Vocabulary, first_difference

TARGET = Vocabulary("bpe", tuple(f"t{i}" for i in range(300)), 1, 2, False, False)


def draft(**changes):
    return dataclasses.replace(TARGET, **changes)


def with_text(token, text):
    texts = list(TARGET.texts)
    texts[token] = text
    return draft(texts=texts)


def test_equal_vocabularies_fit():
    assert first_difference(TARGET, draft()) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "spm"}, "tokenizer types differ: target bpe, draft spm"),
        ({"add_bos": True}, "add-BOS flag"),
        ({"add_eos": True}, "add-EOS flag"),
    ],
)
def test_kind_and_flags(change, words):
    assert words in first_difference(TARGET, draft(**change)).reason
    assert words.split()[0] in first_difference(draft(**change), TARGET).reason


def test_bos_and_eos_tokens_count_only_where_they_are_added():
    assert first_difference(TARGET, draft(bos=9, eos=None)) is None
    for flag, name in (("add_bos", "bos"), ("add_eos", "eos")):
        ours = draft(**{flag: True})
        found = first_difference(ours, dataclasses.replace(ours, **{name: 9}))
        assert f"{name.upper()} token differs" in found.reason


@pytest.mark.parametrize(("padding", "fits"), [(1, True), (128, True), (129, False)])
def test_padding(padding, fits):
    padded = draft(texts=(*TARGET.texts, *(f"pad{i}" for i in range(padding))))
    for one, other in ((TARGET, padded), (padded, TARGET)):
        found = first_difference(one, other)
        assert (found is None) == fits
    if not fits:
        assert "129 tokens (target 429, draft 300)" in found.reason


@pytest.mark.parametrize("token", range(5))
def test_the_first_five_ids_are_not_compared(token):
    assert first_difference(TARGET, with_text(token, "other")) is None


@pytest.mark.parametrize("token", [5, 6, 150, 299])
def test_one_differing_token_is_named(token):
    found = first_difference(TARGET, with_text(token, "other"))
    assert (found.token, found.target_text, found.draft_text) == (token, f"t{token}", "other")
    assert f"token {token} differs" in found.reason


def test_the_first_of_several_is_named():
    texts = [*TARGET.texts[:7], *("x" for _ in range(293))]
    assert first_difference(TARGET, draft(texts=texts)).token == 7


def test_tokens_beyond_the_shorter_one_are_not_compared():
    assert first_difference(TARGET, draft(texts=TARGET.texts[:200])) is None
