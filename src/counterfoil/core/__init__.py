"""The pure core: what follows, what must happen next, what the evidence means.

Nothing in this package reads a clock, a file or a random number. Every rule of the
protocol is decided here, so every rule can be tested as a table.
"""
