"""How well a classifier tells two samples apart (C2ST), with the settings of sbibm."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits


def c2st(reference: np.ndarray, draws: np.ndarray, seed: int = 1) -> float:
    """Cross-validated accuracy of sbibm's classifier between two samples (n, d); 0.5 cannot be told apart."""
    mean, sd, width = reference.mean(0), reference.std(0, ddof=1), 10 * reference.shape[1]
    # sbibm's tensors are single precision too
    both = np.concatenate([(reference - mean) / sd, (draws - mean) / sd]).astype(np.float32)
    label = np.repeat([0, 1], [len(reference), len(draws)])
    classifier = MLPClassifier((width, width), max_iter=10_000, random_state=seed)
    with threadpool_limits(1):
        return float(np.mean(cross_val_score(classifier, both, label, cv=KFold(5, shuffle=True, random_state=seed))))
