"""Permutation tests of calibration: under a calibrated posterior the truth is exchangeable with the posterior's draws.

If a posterior is exact, the truth of a simulation and the posterior's draws for it are exchangeable: any one of them could have
been the truth. Swapping it with a random one, in every simulation, therefore gives exact p-values for any statistic, whatever
the correlations and ties among parameters and draws. A *pool* holds the truth first and then its L draws, along axis 1.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

#: Null replicates: the smallest p is 1/(1 + NULL).
NULL = 4000


def pooled(truth: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """(m, L + 1, ...) from truths (m, ...) and draws (m, L, ...)."""
    return np.concatenate([truth[:, None], draws], axis=1)


def ranks(pool: np.ndarray) -> np.ndarray:
    """Each member's rank among its pool's L + 1 as a mid-rank in (0, 1); pool (m, L + 1, c), ties in order of place."""
    order = np.argsort(pool, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.broadcast_to(np.arange(pool.shape[1])[None, :, None], pool.shape), axis=1)
    return (places + 0.5) / pool.shape[1]


def swaps(m: int, members: int, n: int = NULL) -> np.ndarray:
    """(1 + n, m): which member of each pool is taken for the truth, first the truth itself; the same for the same sizes."""
    chosen = np.random.default_rng(0).integers(0, members, (n, m))
    return np.concatenate([np.zeros((1, m), chosen.dtype), chosen])


def ecdfs(pit: np.ndarray, chosen: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(1 + n, c, points): share of the chosen members' ranks, pit (m, L + 1, c), at or below each of the ascending levels."""
    m, _, columns = pit.shape
    points = len(levels)
    cell = np.searchsorted(levels, pit) + (points + 1) * np.arange(columns)
    size = columns * (points + 1)
    counts = np.stack([np.bincount(cell[np.arange(m), row].ravel(), minlength=size) for row in chosen])
    return counts.reshape(len(chosen), columns, points + 1).cumsum(axis=2)[:, :, :points] / m


def means(values: np.ndarray, chosen: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """(1 + n, c): mean over pools of the chosen members' values (m, L + 1, c), or their sum with weights (m,)."""
    m, members, columns = values.shape
    rows = len(chosen)
    entries = np.tile(np.full(m, 1 / m) if weights is None else weights, rows)
    places = (chosen + members * np.arange(m)).ravel()
    matrix = csr_array((entries, places, m * np.arange(rows + 1)), shape=(rows, m * members))
    return matrix @ values.reshape(-1, columns)


def p_value(statistics: np.ndarray) -> float:
    """Share of statistics (1 + n,) that are at least as large as the first, the observed one."""
    return float(np.mean(statistics >= statistics[0]))


def joint(statistics: np.ndarray) -> np.ndarray:
    """(1 + n,): the largest of several statistics (1 + n, c), each in units of its own standard deviation under the null."""
    null = statistics[1:]
    spread = null.std(axis=0)
    return ((statistics - null.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).max(axis=1)


def standardised(pool: np.ndarray) -> np.ndarray:
    """(m, L + 1, d): each pool less its mean, each parameter over its standard deviation there."""
    centred = pool - pool.mean(axis=1, keepdims=True)
    scale = centred.std(axis=1, keepdims=True)
    return centred / np.where(scale > 0, scale, 1.0)


def whitened(pool: np.ndarray) -> np.ndarray:
    """(m, L + 1, d): each pool less its mean, in its own principal coordinates with unit variance.

    Mean and covariance take the truth in like any draw, so that members stay exchangeable. Directions without any spread become 0.
    """
    centred = standardised(pool)
    values, vectors = np.linalg.eigh(np.einsum("mli,mlj->mij", centred, centred) / pool.shape[1])
    inverse = np.where(values > 1e-9, 1 / np.sqrt(np.maximum(values, 1e-9)), 0.0)
    # back-rotated, so that coordinate i is the one nearest to parameter i
    root = np.einsum("mik,mk,mjk->mij", vectors, inverse, vectors)
    return np.einsum("mli,mij->mlj", centred, root)
