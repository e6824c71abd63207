"""Frameworks that Counterfoil works inside of; each needs the core alone."""
