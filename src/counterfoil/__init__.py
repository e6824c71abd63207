"""Counterfoil: long tasks that act on the real world and can be killed at any instant."""

__version__ = "0.1.0"
