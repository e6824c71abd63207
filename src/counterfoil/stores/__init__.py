"""Where checkpoints, heads and statements are kept: one module for each kind of backend.

A backend implements ports and decides nothing that the conformance clauses of
`counterfoil.testing` do not name. Errors of drivers end here.
"""
