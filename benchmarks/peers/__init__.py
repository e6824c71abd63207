"""Ours, the peers and the raw limits, measured by turns in one run.

`python -m benchmarks.peers` installs peers into environments of their own, starts real
servers, lets all sides take turns in short blocks, and writes what came out as JSON, as
a table and as a chart. A side that cannot be measured is named with the reason.
"""
