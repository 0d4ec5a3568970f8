"""The divergence of two replays against that of the full distributions they were cut from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from adrbench.agreement.buckets import buckets, by_bucket
from adrbench.agreement.divergence import positions

Pair = Callable[..., Any]


def full_kl(p: Any, q: Any) -> Any:
    return (p * np.log(p / q)).sum(axis=-1)


def test_all_tokens_named_gives_the_divergence_itself(pair: Pair) -> None:
    p, q, baseline, arm = pair(top=40)
    found = positions(baseline, arm)
    np.testing.assert_allclose(found.kl, full_kl(p, q), atol=1e-6)
    assert found.lumped.max() < 1e-9


@pytest.mark.parametrize("top", [1, 5, 20])
def test_fewer_tokens_give_a_lower_bound_that_grows_with_their_number(pair: Pair, top: int) -> None:
    p, q, baseline, arm = pair(top=top)
    found = positions(baseline, arm)
    assert (found.kl <= full_kl(p, q) + 1e-6).all()
    assert found.kl.mean() > 0
    more = positions(*pair(top=top + 10)[2:])
    assert found.kl.mean() < more.kl.mean() + 1e-9


def test_the_following_token_is_not_counted_twice(pair: Pair) -> None:
    """Probabilities of the named tokens and the lump add up to one."""
    p, _, baseline, arm = pair(top=5)
    found = positions(baseline, arm)
    for s in range(p.shape[0]):
        for j in range(p.shape[1]):
            named = (set(baseline.top[s, j]) & set(arm.top[s, j])) | {int(baseline.token[s, j])}
            assert found.lumped[s, j] == pytest.approx(1 - sum(p[s, j, list(named)]), abs=1e-9)


def test_a_replay_against_itself_differs_in_nothing(pair: Pair) -> None:
    _, _, baseline, _ = pair()
    found = positions(baseline, baseline)
    assert found.equal.all()
    assert found.kl.max() < 1e-12
    shown = by_bucket(found, [10], 0.95)["all"]
    assert shown["agreement"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert shown["perplexity_ratio"] == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_replays_of_different_texts_are_refused(pair: Pair) -> None:
    _, _, baseline, arm = pair()
    other = type(arm)(arm.token + 1, arm.logprob, arm.top, arm.top_logprob)
    with pytest.raises(ValueError, match="different texts"):
        positions(baseline, other)


def test_figures_by_bucket_are_those_of_the_positions(pair: Pair) -> None:
    p, q, baseline, arm = pair()
    found = positions(baseline, arm)
    shown = by_bucket(found, [10], 0.95)
    assert list(shown) == ["all", "1-10", "11-30"]
    late = shown["11-30"]
    assert late["positions"] == 4 * 20
    equal = p[:, 10:].argmax(-1) == q[:, 10:].argmax(-1)
    assert late["agreement"]["value"] == pytest.approx(equal.mean())
    sure = p[:, 10:].max(-1) > 0.5
    assert late["sure_positions"] == sure.sum()
    assert late["sure_agreement"]["value"] == pytest.approx(equal[sure].mean())
    assert late["kl_nats"]["value"] == pytest.approx(found.kl[:, 10:].mean())
    assert late["kl_nats"]["low"] < late["kl_nats"]["value"] < late["kl_nats"]["high"]
    ratio = late["perplexity"]["value"] / late["baseline_perplexity"]["value"]
    assert late["perplexity_ratio"]["value"] == pytest.approx(ratio)


def test_no_sure_position_gives_no_figure(pair: Pair) -> None:
    _, _, baseline, arm = pair()
    flat = type(baseline)(baseline.token, baseline.logprob, baseline.top, baseline.top_logprob - 2)
    assert by_bucket(positions(flat, arm), [], 0.95)["all"]["sure_agreement"] is None


@pytest.mark.parametrize("edges", [[30], [31], [0, 10]])
def test_an_empty_bucket_is_refused(edges: list[int]) -> None:
    with pytest.raises(ValueError, match="would be empty"):
        list(buckets(edges, 30))
