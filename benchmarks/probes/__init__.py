"""Measurements that train no network to its end: costs, estimators, corrections."""
