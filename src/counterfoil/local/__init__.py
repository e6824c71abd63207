"""Throwaway servers on this machine, for trials, drills and tests."""
