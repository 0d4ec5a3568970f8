"""How far an arm's next-token distributions are from the baseline's, position by position. Pure.

Two replays give, at each position, the K best tokens of each side and the log-probability of the token that
follows. Tokens that both sides name are compared one by one, all others are lumped into one: the
Kullback-Leibler divergence of the two lumped distributions is

    sum over named tokens  p log(p / q)  +  r log(r / s),      r = 1 - sum p,  s = 1 - sum q

which never exceeds that of the full distributions (lumping cannot raise it, the data-processing
inequality), so it is a lower bound. No upper bound follows from the K best: q of a token that only the baseline
names may be arbitrarily small. ``lumped``, the baseline's probability in the lumped token, says how much is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from adrbench.agreement.replay import Replay
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Log-probabilities come as 32-bit numbers: what is left of 1 below this is rounding.
FLOOR = 1e-7
SURE = 0.5


@dataclass(frozen=True)
class Positions:
    """Per position of an arm against the baseline, all ``[S, N]``.

    Attributes:
        equal: both sides rank the same token first.
        sure: the baseline gives its first token more than ``SURE``.
        kl: lower bound of KL(baseline || arm) in nats.
        lumped: the baseline's probability that is not compared token by token.
        baseline_nll: negative log-probability of the token that follows, in nats; ``arm_nll`` likewise.
    """

    equal: NDArray[np.bool_]
    sure: NDArray[np.bool_]
    kl: Floats
    lumped: Floats
    baseline_nll: Floats
    arm_nll: Floats


def _matches(ours: Replay, theirs: Replay, at: int) -> tuple[NDArray[np.bool_], Floats]:
    """For one segment: which of our K tokens the other side names, and its log-probability of them, ``[N, K]``."""
    same = ours.top[at][:, :, None] == theirs.top[at][:, None, :]
    found = same.any(axis=2)
    # Each id stands at most once in a row, so the sum over the other side's tokens is its one value.
    return found, np.where(same, theirs.top_logprob[at][:, None, :], 0.0).sum(axis=2)


def lumped_kl(baseline: Replay, arm: Replay, at: int) -> tuple[Floats, Floats]:
    """(lower bound of the divergence, lumped probability) at each position of one segment, ``[N]`` each."""
    named, log_q = _matches(baseline, arm, at)
    log_p = baseline.top_logprob[at]
    p = np.where(named, np.exp(log_p), 0.0)
    q = np.where(named, np.exp(log_q), 0.0)
    total = np.where(named, p * (log_p - log_q), 0.0).sum(axis=1)
    # The token that follows is known on both sides even where it is not among the best.
    own = baseline.token[at][:, None]
    beside = ~((baseline.top[at] == own) & named).any(axis=1)
    own_p = np.where(beside, np.exp(baseline.logprob[at]), 0.0)
    own_q = np.where(beside, np.exp(arm.logprob[at]), 0.0)
    total += np.where(beside, own_p * (baseline.logprob[at] - arm.logprob[at]), 0.0)
    rest_p = 1.0 - p.sum(axis=1) - own_p
    rest_q = 1.0 - q.sum(axis=1) - own_q
    lumped = np.maximum(rest_p, 0.0)
    both = np.maximum(rest_p, FLOOR) * np.log(np.maximum(rest_p, FLOOR) / np.maximum(rest_q, FLOOR))
    return np.maximum(total + both, 0.0), lumped


def positions(baseline: Replay, arm: Replay) -> Positions:
    """Every position of every segment.

    Raises:
        ValueError: the two replays are not of the same text.
    """
    if not np.array_equal(baseline.token, arm.token):
        raise ValueError("the two replays are of different texts")
    pairs = [lumped_kl(baseline, arm, at) for at in range(len(baseline.token))]
    return Positions(
        equal=baseline.top[:, :, 0] == arm.top[:, :, 0],
        sure=np.exp(baseline.top_logprob[:, :, 0]) > SURE,
        kl=np.stack([kl for kl, _ in pairs]),
        lumped=np.stack([lumped for _, lumped in pairs]),
        baseline_nll=-baseline.logprob,
        arm_nll=-arm.logprob,
    )
