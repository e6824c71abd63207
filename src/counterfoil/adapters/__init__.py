"""Adapters: one environment each, as the engine sees it."""
