"""Estimators of the Hessian's diagonal; ``base`` has their interface."""
